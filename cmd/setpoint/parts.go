// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"fmt"
	"strings"
)

// parts are files for a project that was made earlier, with the template's names. They compile in a
// project, so the tests of the add commands compile them.
//
//go:embed parts
var parts embed.FS

// add adds a file under a name of the template, with other names. It refuses a test that reads a
// sample which is not there.
func (f files) add(name, text string, n *names) error {
	if n.clusterScoped {
		text = strings.NewReplacer("obj.Namespace)", `"default")`, keyOf, clusterKey).Replace(text)
	}
	text, err := n.rename(name, text)
	if err != nil {
		return err
	}
	file := n.replacer().Replace(name)
	if sample := n.sample(); strings.Contains(text, sample) && f[sample] == "" {
		return fmt.Errorf("there is no file %s, which the new test %s reads; put an object of the kind %s there first", sample, file, n.kind)
	}
	f[file] = text
	return nil
}

// readPart returns the text of a part without its head.
func readPart(name string) (string, error) {
	text, err := parts.ReadFile("parts/" + name)
	_, body, found := strings.Cut(string(text), "//go:build ignore\n\n")
	if !found {
		return string(text), err
	}
	return body, err
}

// addParts adds the files that are not there.
func (f files) addParts(n *names, all ...string) error {
	for _, name := range all {
		if _, there := f[n.replacer().Replace(name)]; there {
			continue
		}
		text, err := readPart(name)
		if err != nil {
			return err
		}
		if err := f.add(name, text, n); err != nil {
			return err
		}
	}
	return nil
}
