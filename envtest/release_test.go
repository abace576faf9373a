// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestRelease_OptionBeforeVariableBeforeDefault(t *testing.T) {
	for name, test := range map[string]struct {
		option, variable string
		want             string
	}{
		"default":  {"", "", KubernetesVersion},
		"variable": {"", "1.36", "v1.36."},
		"option":   {"1.35", "", "v1.35."},
		"both":     {"1.35", "1.36", "v1.35."},
		"newest":   {"1.37", "1.36", KubernetesVersion},
	} {
		t.Setenv(versionVariable, test.variable)
		if got, err := (Options{Version: test.option}).release(); err != nil || !strings.HasPrefix(string(got), test.want) {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
	t.Setenv(versionVariable, "1.3")
	_, err := Options{}.release()
	testkit.Contains(t, errorText(err), `SETPOINT_KUBERNETES is "1.3"; use a supported version: 1.37, 1.36, 1.35`)
}

// A program that was built elsewhere has its own version.
func TestRelease_ExcludesTheGivenProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	testkit.NoError(t, os.WriteFile(file, nil, 0o755))
	t.Setenv(programVariable, file)
	t.Setenv(versionVariable, "")
	if _, err := Program(t.Context(), Options{Version: "1.36"}); !strings.Contains(errorText(err), programVariable+"="+file) || !strings.Contains(errorText(err), "Options.Version is 1.36") {
		t.Errorf("with Options.Version: %v", err)
	}
	t.Setenv(versionVariable, "1.35")
	if _, err := Program(t.Context(), Options{}); !strings.Contains(errorText(err), programVariable+"="+file) || !strings.Contains(errorText(err), "SETPOINT_KUBERNETES is 1.35") {
		t.Errorf("with SETPOINT_KUBERNETES: %v", err)
	}
}

// make compat has the versions, too.
func TestReleases_AreTheMakefiles(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	testkit.NoError(t, err)
	want := "\nKUBERNETES ?="
	for _, r := range releases() {
		want += " " + r.minor()
	}
	testkit.Contains(t, string(text), want+"\n", "the Makefile")
}

// Start with prebuilt binaries or an existing cluster does not look at the variable.
func TestRelease_VariableIsForBuildsOnly(t *testing.T) {
	t.Setenv(versionVariable, "1.3")
	t.Setenv(assetsVariable, "")
	_, err := Start(t.Context(), Options{UseKubebuilderAssets: true})
	testkit.Contains(t, errorText(err), assetsVariable, "prebuilt binaries")
	testkit.NotContains(t, errorText(err), versionVariable, "prebuilt binaries")
	_, err = Start(t.Context(), Options{Kubeconfig: filepath.Join(t.TempDir(), "missing")})
	testkit.Contains(t, errorText(err), "Options.Kubeconfig", "an existing cluster")
	testkit.NotContains(t, errorText(err), versionVariable, "an existing cluster")
}
