// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// script is a named sequence of requests. Its text form:
//
//	== pending: the name of the script
//	# A comment.
//	POST configmaps {"metadata":{"name":"a"}}
//	PATCH configmaps/a @merge {"data":{"k":"v"}}
//	GET /api/v1/namespaces/{ns}/configmaps/a @accept=application/json
//
// A target without a leading slash begins with the plural of a kind of this suite. {ns} is the
// namespace of the script, which exists. See expand for the other placeholders.
// In addition to the methods of HTTP:
//
//	WATCH opens a watch; its events until that of an object "end" are compared after the last step
//	GONE waits until an object does not exist
//	SETTLE waits until lists show the same objects, whatever their versions; commas separate them
//	UNTIL waits until an object contains the body; null means absent
//	HOOKED waits until the creation of an object is denied, by a webhook of {probe}
//	SETUP is a POST that must succeed; its response is not compared
//	SERVED waits until a read succeeds
//
// A script is pending if the responses are known to differ. It must differ.
type script struct {
	name    string
	pending bool
	steps   []step
}

// step is a request.
type step struct {
	method, target string
	options        []string // without the @
	body           string
}

func (s step) String() string {
	line := s.method + " " + s.target
	for _, o := range s.options {
		line += " @" + o
	}
	if s.body != "" {
		line += " " + s.body
	}
	return line
}

func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "== %s\n", s.name)
	for _, one := range s.steps {
		fmt.Fprintln(&b, one)
	}
	return b.String()
}

func parseStep(line string) step {
	method, rest, _ := strings.Cut(line, " ")
	target, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	s := step{method: method, target: target}
	for strings.HasPrefix(rest, "@") {
		var option string
		option, rest, _ = strings.Cut(rest[1:], " ")
		s.options = append(s.options, option)
	}
	s.body = rest
	return s
}

func parseScripts(text string) []script {
	var list []script
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "== "); ok {
			name, pending := strings.CutPrefix(title, "pending: ")
			list = append(list, script{name: name, pending: pending})
			continue
		}
		if line != "" && !strings.HasPrefix(line, "#") {
			last := &list[len(list)-1]
			last.steps = append(last.steps, parseStep(line))
		}
	}
	return list
}

// scriptFiles returns the scripts of testdata by file.
func scriptFiles(t *testing.T) map[string][]script {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txt")
	testkit.NoError(t, err)
	files := map[string][]script{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		testkit.NoError(t, err)
		files[name] = parseScripts(string(text))
	}
	return files
}
