// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"strings"
)

// parts are files for a project that was made earlier, with the template's names. They compile in a
// project, so the tests of the add commands compile them.
//
//go:embed parts
var parts embed.FS

// add adds a file under a name of the template, with other names.
func (f files) add(name, text string, n *names) error {
	if n.clusterScoped {
		text = strings.NewReplacer("obj.Namespace)", `"default")`, keyOf, clusterKey).Replace(text)
	}
	text, err := n.rename(name, text)
	f[n.replacer().Replace(name)] = text
	return err
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
