// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/tools/internal/mutation"
)

// repository creates a git repository with a library, a template that needs the workspace, and a
// module outside it.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module example.com/lib\n\ngo 1.26.0\n",
		"go.work":    "go 1.26.0\n\nuse (\n\t.\n\t./examples/site\n)\n\nreplace example.com/lib v0.1.0 => ./\n",
		"sum/sum.go": "package sum\n\nvar two = one() + 1\n\nfunc one() int { return 1 }\n\nfunc unused() int { return 1 }\n\n// Of adds.\nfunc Of(a, b int) int {\n\tif a == 0 {\n\t\treturn b\n\t}\n\treturn a + b\n}\n",
		"sum/sum_test.go": `package sum

import (
	"os"
	"testing"
)

func TestOf1(t *testing.T) {
	if Of(1, 2) != 3 {
		t.Error("no")
	}
}

func TestOf2(t *testing.T) {
	t.Run("zero", func(t *testing.T) {
		if Of(0, 2) != 2 {
			t.Error("no")
		}
	})
}

// TestApart fails with each change, and shows none.
func TestApart(t *testing.T) {
	if os.Getenv("SETPOINT_MUTANT") != "0" {
		t.Fail()
	}
}

func TestEnds(t *testing.T) {
	for Of(1, 2) != 3 {
	}
}

func TestSkipped(t *testing.T) { t.Skip() }

func TestFull(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip()
	}
	if Of(1, 1) != 2 {
		panic("no")
	}
}
`,
		"examples/site/go.mod":       "module example.com/site\n\ngo 1.26.0\n\nrequire example.com/lib v0.1.0\n",
		"examples/site/site.go":      "package site\n\nimport \"example.com/lib/sum\"\n\nvar Two = sum.Of(1, 1)\n",
		"examples/site/site_test.go": "package site\n\nimport \"testing\"\n\nfunc TestOf3(t *testing.T) {\n\tif Two != 2 {\n\t\tt.Fail()\n\t}\n}\n",
		"alone/go.mod":               "module example.com/alone\n\ngo 1.26.0\n",
		"alone/in/alone.go":          "package in\n\nconst One = 1\n",
		"alone/in/alone_test.go":     "package in\n\nimport \"testing\"\n\nfunc TestOf4(t *testing.T) {\n\tif One != 1 {\n\t\tt.Fail()\n\t}\n}\n",
		".gitignore":                 "/bin/\n",
		"bin/ignored.go":             "not Go",
	} {
		write(t, filepath.Join(root, name), text)
	}
	if out, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return root
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func judged(t *testing.T, text string) (out string, survived bool, err error) {
	t.Helper()
	root := repository(t)
	entries, err := mutation.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := copyTree(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tree)
	if _, err := os.Stat(filepath.Join(tree, "bin")); err == nil {
		t.Error("what git ignores was copied")
	}
	var b strings.Builder
	survived, err = judge(t.Context(), &b, goTest{tree, time.Minute}, entries)
	for name, want := range map[string]string{"sum/sum.go": "a + b", "alone/in/alone.go": "One = 1"} {
		if got, _ := os.ReadFile(filepath.Join(root, name)); !strings.Contains(string(got), want) {
			t.Errorf("%s was changed:\n%s", name, got)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(tree, "alone/in/alone.go")); !strings.Contains(string(got), "One = 1") {
		t.Errorf("alone/in/alone.go was left changed:\n%s", got)
	}
	return b.String(), survived, err
}

const noticed = `G1 sum TestOf1
in: sum Of
- return a + b
+ return a - b

G2 sum TestOf2/zero
in: sum Of
- return b
+ return a

G1 sum TestFull
in: sum Of
- return a + b
+ return a - b

G3 examples/site TestOf3
in: sum Of
- return a + b
+ return 7

G3 sum TestEnds
in: sum Of
- return a + b
+ return a

G4 alone/in TestOf4
in: alone/in One
- 1
+ 2
`

func TestJudgeNoticed(t *testing.T) {
	out, survived, err := judged(t, noticed)
	if err != nil || survived {
		t.Fatalf("survived = %v, err = %v\n%s", survived, err, out)
	}
	if !strings.HasSuffix(out, "6 mutations of 4 guarantees: 6 noticed, 0 survived, 0 in error\n") {
		t.Error(out)
	}
}

// TestJudge_TwoBrokenMutants: an error counts for the mutant that has it, also if another mutant of
// the same file has left.
func TestJudge_TwoBrokenMutants(t *testing.T) {
	text := "G1 sum TestOf1\nin: sum Of\n- return a + b\n+ x := 1; y := 2; return c\n\n" +
		"G2 sum TestOf2/zero\nin: sum Of\n- return b\n+ return a\n\n" +
		"G3 sum TestOf1\nin: sum Of\n- return a + b\n+ return d\n"
	out, survived, err := judged(t, text)
	if err == nil || survived || !strings.Contains(out, "1 noticed, 0 survived, 2 in error") {
		t.Errorf("survived = %v, err = %v\n%s", survived, err, out)
	}
}

func TestJudge_NotReached(t *testing.T) {
	out, survived, err := judged(t, "G1 sum TestOf1\nin: sum unused\n- return 1\n+ return 2\n")
	if err != nil || !survived || !strings.Contains(out, "SURVIVED, not reached") {
		t.Errorf("survived = %v, err = %v\n%s", survived, err, out)
	}
}

func TestJudgeSurvived(t *testing.T) {
	out, survived, err := judged(t, "G1 sum TestOf1\nin: sum Of\n- a == 0\n+ a < 1\n")
	if err != nil || !survived {
		t.Fatalf("survived = %v, err = %v\n%s", survived, err, out)
	}
	if !strings.HasSuffix(out, "1 mutations of 1 guarantees: 0 noticed, 1 survived, 0 in error\nsurvived: G1 (TestOf1)\n") {
		t.Error(out)
	}
}

// TestParseReport_SeveralRuns: of several runs of a test, one that failed or has not ended counts
// most, then one that passed.
func TestParseReport_SeveralRuns(t *testing.T) {
	for actions, want := range map[string]string{
		"run skip run pass run skip": "pass", "run pass run fail run pass": "fail", "run skip run skip": "skip", "run pass run": "run",
	} {
		var out strings.Builder
		for _, a := range strings.Fields(actions) {
			fmt.Fprintf(&out, "{\"Action\":%q,\"Test\":\"TestX\"}\n", a)
		}
		if r, err := parseReport(out.String()); err != nil || r.tests["TestX"] != want {
			t.Errorf("%s: got %v, %v", actions, r.tests, err)
		}
	}
}

func TestJudgeErrors(t *testing.T) {
	for text, want := range map[string]string{
		"G1 sum TestOf1\nin: sum Of\n- return a + b\n+ return c\n":     "does not compile",
		"G1 sum TestOf1\nin: sum Of\n- return max(a, b)\n+ return a\n": "0 times",
		"G1 sum TestOf1\nin: none f\n- x\n+ y\n":                       "f in none has the code to replace 0 times",
		"G1 sum TestNone\nin: sum Of\n- return a + b\n+ return a\n":    "TestNone in sum should pass and is: not there",
		"G1 sum TestSkipped\nin: sum Of\n- return a + b\n+ return a\n": "TestSkipped in sum should pass and is: skip",
		"G1 sum TestApart\nin: sum Of\n- return a + b\n+ return a\n":   "TestApart fails before it gets to the changed code",
		"G1 sum TestOf1\nin: sum one\n- return 1\n+ return two\n":      "initialization cycle",
		"G2 sum TestOf2/one\nin: sum Of\n- return a + b\n+ return a\n": "TestOf2/one in sum should pass and is: not there",
	} {
		out, survived, err := judged(t, text)
		if err == nil || survived || !strings.Contains(err.Error(), want) {
			t.Errorf("survived = %v, err = %v, want %q\n%s", survived, err, want, out)
		}
	}
}
