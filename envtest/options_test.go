// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"zero":     {Options{}, "nil"},
		"timeouts": {Options{StartTimeout: time.Second, StopTimeout: time.Second}, "nil"},
		"start":    {Options{StartTimeout: -1}, "Options.StartTimeout"},
		"stop":     {Options{StopTimeout: -1}, "Options.StopTimeout"},
		"two":      {Options{Kubeconfig: "a", UseKubebuilderAssets: true}, "Options.Kubeconfig"},

		"version":                 {Options{Version: "1.36"}, "nil"},
		"default version":         {Options{Version: "1.37"}, "nil"},
		"unsupported version":     {Options{Version: "1.34"}, `Options.Version is "1.34"; use a supported version: 1.37, 1.36, 1.35`},
		"patch version":           {Options{Version: "v1.36.3"}, `Options.Version is "v1.36.3"; use`},
		"version of a cluster":    {Options{Version: "1.36", Kubeconfig: "a"}, "Options.Version and Options.Kubeconfig"},
		"version of the binaries": {Options{Version: "1.36", UseKubebuilderAssets: true}, "Options.Version and Options.UseKubebuilderAssets"},
	} {
		testkit.Contains(t, errorText(test.options.Validate()), test.want, name)
	}
	o := Options{}.withDefaults()
	testkit.Equal(t, o.StartTimeout, 60*time.Second)
	testkit.Equal(t, o.StopTimeout, 10*time.Second)
	testkit.Equal(t, o.Progress == os.Stderr, true, "the progress is on the standard error")
}

func TestTail(t *testing.T) {
	var out testkit.Buffer
	last := &tail{prefix: "p: ", out: &out}
	write := func(text string) {
		n, err := last.Write([]byte(text))
		testkit.Equal(t, n, len(text))
		testkit.NoError(t, err)
	}
	write("one\ntwo\nhal")
	write("f\nopen")
	testkit.Equal(t, last.String(), "one\ntwo\nhalf\nopen")
	testkit.Equal(t, out.String(), "p: one\np: two\np: half\n", "passed on")
	write("\n" + strings.Repeat("x\n", 2*tailLines) + strings.Repeat("y", 2*maxLine) + "\nend\n")
	lines := strings.Split(last.String(), "\n")
	if len(lines) != tailLines || lines[tailLines-1] != "end" || len(lines[tailLines-2]) != maxLine {
		t.Errorf("%d lines, the last of %d and %d bytes", len(lines), len(lines[len(lines)-2]), len(lines[len(lines)-1]))
	}
}

func TestReportReader(t *testing.T) {
	found := make(chan report, 1)
	r := &reportReader{found: found}
	for _, part := range []string{`{"addr`, `ess": "here"}` + "\nmore\n", "and more\n"} {
		n, err := r.Write([]byte(part))
		testkit.Equal(t, n, len(part))
		testkit.NoError(t, err)
	}
	got := <-found
	testkit.Equal(t, got.Address, "here")
	testkit.Equal(t, got.Error, "")
}

// A build prints its cost beforehand. Without a terminal, a long build then prints progress lines.
func TestGoOutput(t *testing.T) {
	var out testkit.Buffer
	report := &progressReport{out: &out}
	report.begin("downloading", 0)
	o := &tail{skips: report.took}
	for _, part := range []string{"go: downloading k8s.io/api v0.36.3\ngo: down", "loading k8s.io/client-go v0.36.3\n"} {
		testkit.NoError(t, testkit.Err(o.Write([]byte(part))))
	}
	testkit.Equal(t, report.textLocked(), "0s, downloading: module 2, k8s.io/client-go v0.36.3")
	report.begin("compiling", 2491)
	testkit.NoError(t, testkit.Err(o.Write([]byte("k8s.io/api/core/v1\nk8s.io/api/apps/v1\n# broken/package\nbroken/package/a.go:1:2: no\nlast"))))
	testkit.Equal(t, report.textLocked(), "0s, compiling: 2 of at most 2491 packages")
	testkit.Equal(t, o.String(), "# broken/package\nbroken/package/a.go:1:2: no\nlast", "what is left for an error")
}
