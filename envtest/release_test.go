// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"os"
	"path/filepath"
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
		got, err := (Options{Version: test.option}).release()
		testkit.NoError(t, err, name)
		testkit.HasPrefix(t, string(got), test.want, name)
	}
	t.Setenv(versionVariable, "1.3")
	_, err := Options{}.release()
	testkit.ErrorContains(t, err, `SETPOINT_KUBERNETES is "1.3"; use a supported version: 1.37, 1.36, 1.35`)
}

// A program that was built elsewhere has its own version.
func TestRelease_ExcludesTheGivenProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	testkit.NoError(t, os.WriteFile(file, nil, 0o755))
	t.Setenv(programVariable, file)
	t.Setenv(versionVariable, "")
	_, err := Program(t.Context(), Options{Version: "1.36"})
	testkit.ErrorContains(t, err, programVariable+"="+file, "with Options.Version")
	testkit.ErrorContains(t, err, "Options.Version is 1.36", "with Options.Version")
	t.Setenv(versionVariable, "1.35")
	_, err = Program(t.Context(), Options{})
	testkit.ErrorContains(t, err, programVariable+"="+file, "with SETPOINT_KUBERNETES")
	testkit.ErrorContains(t, err, "SETPOINT_KUBERNETES is 1.35", "with SETPOINT_KUBERNETES")
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
	testkit.ErrorContains(t, err, assetsVariable, "prebuilt binaries")
	testkit.NotContains(t, errorText(err), versionVariable, "prebuilt binaries")
	_, err = Start(t.Context(), Options{Kubeconfig: filepath.Join(t.TempDir(), "missing")})
	testkit.ErrorContains(t, err, "Options.Kubeconfig", "an existing cluster")
	testkit.NotContains(t, errorText(err), versionVariable, "an existing cluster")
}
