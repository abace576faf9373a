// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// figures are what TestMeasure of the example prints.
type figures struct {
	configMaps, secrets, refused, writes int
	stop, next                           float64
	finished                             bool
}

// TestMoving applies the patches of docs/moving.md to an operator as kubebuilder makes it. After
// each of them, the operator passes its tests and gains what the page claims. The patches can be
// reverted. Without SETPOINT_FULL, only the operator at level b is tested.
func TestMoving(t *testing.T) {
	dir := example(t)
	states := []map[string]string{filesOf(t, dir)}
	steps := []struct {
		patch string
		gains func(figures) bool
	}{
		{"", func(f figures) bool { return f.configMaps > 40 && f.secrets == 0 && !f.finished && f.next > 10 }},
		{"1-host", func(f figures) bool { return f.configMaps > 40 && f.secrets == 20 && !f.finished && f.next > 10 }},
		{"2-level-a", func(f figures) bool { return f.configMaps > 40 && f.secrets == 20 && f.finished && f.next < 5 }},
		{"3-level-b", func(f figures) bool { return f.configMaps == 20 && f.secrets == 20 && f.finished && f.next < 5 }},
		{"4-native", func(f figures) bool { return f.configMaps == 20 && f.secrets == 20 && f.finished && f.next < 5 }},
	}
	for _, s := range steps {
		if s.patch != "" {
			apply(t, dir, s.patch)
			states = append(states, filesOf(t, dir))
		}
		if os.Getenv("SETPOINT_FULL") == "" && s.patch != "3-level-b" {
			continue // each program takes a while to compile
		}
		linked := bytes.Count(outputOf(t, dir, "go", "list", "-deps", "./cmd"), []byte("sigs.k8s.io/controller-runtime"))
		// It compiles the program, too: the test is in its package.
		out := outputOf(t, dir, "go", "test", "-ldflags=-w", "-count=1", "-v", "./...")
		if os.Getenv("SETPOINT_FULL") != "" && !bytes.Contains(out, []byte("--- PASS: TestGuestbook_RealAPIServer")) {
			t.Error("no test has run on a real API server")
		}
		f := measured(t, out)
		t.Logf("%-9s %+v, %d packages of controller-runtime", s.patch, f, linked)
		testkit.Equal(t, s.gains(f), true, fmt.Sprintf("after the step %q the figures are %+v", s.patch, f))
	}
	for i := len(steps) - 1; i > 0; i-- {
		apply(t, dir, steps[i].patch, "--reverse")
		if !reflect.DeepEqual(filesOf(t, dir), states[i-1]) {
			t.Errorf("the reverse of %s leaves other files than before", steps[i].patch)
		}
	}
}

// example returns a copy of the example, whose go.mod finds the modules here.
func example(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	testkit.NoError(t, os.CopyFS(dir, os.DirFS("testdata/moving")))
	here, err := os.Getwd()
	testkit.NoError(t, err)
	for module, folder := range map[string]string{"github.com/setpoint-dev/setpoint": filepath.Dir(here), "github.com/setpoint-dev/setpoint/crbridge": here} {
		outputOf(t, dir, "go", "mod", "edit", "-replace", module+"="+folder)
	}
	return dir
}

func apply(t *testing.T, dir, patch string, args ...string) {
	t.Helper()
	outputOf(t, dir, "git", append(append([]string{"apply"}, args...), patch+".patch")...)
}

// outputOf returns what a command prints, which must succeed.
func outputOf(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := command(t, dir, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out[max(0, len(out)-20000):])
	}
	return out
}

// filesOf returns the files and their content.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(text)
		return err
	})
	testkit.NoError(t, err)
	return all
}

var reported = regexp.MustCompile(`main_test\.go:\d+: (20 Guestbooks.*|a stop took.*)`)

func measured(t *testing.T, out []byte) (f figures) {
	t.Helper()
	lines := reported.FindAllSubmatch(out, -1)
	if len(lines) != 2 {
		t.Fatalf("TestMeasure has printed %q", lines)
	}
	text := string(bytes.Join([][]byte{lines[0][1], lines[1][1]}, []byte(" ")))
	_, err := fmt.Fscanf(strings.NewReader(text),
		"20 Guestbooks, watches 500 ms late: %d ConfigMaps, %d Secrets, %d of %d writes refused a stop took %f s, its Reconcile finished: %t, the next leader worked %f s after the stop began",
		&f.configMaps, &f.secrets, &f.refused, &f.writes, &f.stop, &f.finished, &f.next)
	testkit.NoError(t, err, text)
	return f
}
