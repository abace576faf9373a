// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

var (
	update  = flag.Bool("update", false, "rewrite which scripts are pending")
	pending = flag.Bool("pending", false, "print the differences of pending scripts; fail if one has none")
)

// needControllers are the files of testdata that need the controllers of a cluster.
var needControllers = []string{"gc.txt", "namespace.txt"}

// TestV1_ScriptsHaveTheSameResponses runs the scripts of testdata. To see how a pending script
// differs, run it with -pending. After the simulation has improved, run with -update.
func TestV1_ScriptsHaveTheSameResponses(t *testing.T) {
	var mu sync.Mutex
	changed := map[string][]string{} // names by file
	t.Run("all", func(t *testing.T) {
		for file, scripts := range scriptFiles(t) {
			c := plain
			if slices.Contains(needControllers, filepath.Base(file)) {
				c = controlled
			}
			for _, s := range scripts {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+s.name, func(t *testing.T) {
					t.Parallel()
					host, client := c.start(t)
					found, err := compare(t.Context(), host, client, s)
					testkit.NoError(t, err)
					for _, d := range found {
						switch {
						case s.pending && *pending:
							t.Log(d.in(s))
						case !s.pending && !*update:
							t.Error(d.in(s))
						}
					}
					if s.pending == (len(found) > 0) {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					changed[file] = append(changed[file], s.name)
					if s.pending && *pending {
						t.Errorf("it passes now: remove \"pending: \" in front of its name in %s, or run with -update", file)
					}
				})
			}
		}
	})
	if *update {
		rewrite(t, changed)
	}
}

// rewrite inverts which of the named scripts are pending.
func rewrite(t *testing.T, changed map[string][]string) {
	t.Helper()
	for file, names := range changed {
		text, err := os.ReadFile(file)
		testkit.NoError(t, err)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			title, isTitle := strings.CutPrefix(line, "== ")
			name, was := strings.CutPrefix(title, "pending: ")
			switch {
			case !isTitle || !slices.Contains(names, name):
			case was:
				lines[i] = "== " + name
			default:
				lines[i] = "== pending: " + name
			}
		}
		testkit.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	}
}
