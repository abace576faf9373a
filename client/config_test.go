// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://HOST:6443"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: secret}}]
current-context: x
`

// elsewhere hides the configuration of the user who runs the test. It returns the file that stands
// for the one below the home directory.
func elsewhere(t *testing.T) (home string) {
	t.Helper()
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	before := clientcmd.RecommendedHomeFile
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = before })
	clientcmd.RecommendedHomeFile = filepath.Join(t.TempDir(), "home", ".kube", "config")
	return clientcmd.RecommendedHomeFile
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadConfig(t *testing.T) {
	home := elsewhere(t)
	dir := t.TempDir()
	at := func(name string) string {
		return write(t, filepath.Join(dir, name), strings.Replace(kubeconfig, "HOST", name, 1))
	}
	check := func(path, host string) {
		t.Helper()
		cfg, err := client.LoadConfig(path)
		testkit.NoError(t, err)
		testkit.Equal(t, cfg.Host, "https://"+host+":6443")
		testkit.Equal(t, cfg.BearerToken, "secret")
		testkit.Equal(t, cfg.QPS, -1)
	}
	write(t, home, strings.Replace(kubeconfig, "HOST", "home", 1))
	check("", "home")
	t.Setenv("KUBECONFIG", filepath.Join(dir, "missing")+string(filepath.ListSeparator)+at("env"))
	check("", "env")
	check(at("path"), "path")
}

// contexts has several contexts, one of them without its cluster.
const contexts = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://c:6443"}}, {name: d, cluster: {server: "https://d:6443"}}]
contexts:
- {name: current, context: {cluster: c, user: u}}
- {name: other, context: {cluster: d, user: v}}
- {name: dangling, context: {cluster: gone, user: v}}
users: [{name: u, user: {token: secret}}, {name: v, user: {token: other secret}}]
current-context: current
`

func TestLoadConfigContext(t *testing.T) {
	home := elsewhere(t)
	path := write(t, filepath.Join(t.TempDir(), "config"), contexts)
	use := func(how string, set func()) {
		t.Helper()
		set()
		given := ""
		if how == "path" {
			given = path
		}
		for name, want := range map[string]string{"": "https://c:6443 secret", "current": "https://c:6443 secret", "other": "https://d:6443 other secret"} {
			cfg, err := client.LoadConfigContext(given, name)
			testkit.NoError(t, err)
			testkit.Equal(t, cfg.Host+" "+cfg.BearerToken, want, fmt.Sprintf("%s, context %q", how, name))
			testkit.Equal(t, cfg.QPS, -1, fmt.Sprintf("%s, context %q", how, name))
		}
		for name, want := range map[string]string{"Other": `has no context "Other"; use one of ["current" "dangling" "other"]`, "dangling": `the context "dangling" of the kubeconfig`} {
			if _, err := client.LoadConfigContext(given, name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: got %v, want %s", how, err, want)
			}
		}
	}
	use("path", func() {})
	use("KUBECONFIG", func() { t.Setenv("KUBECONFIG", path) })
	use("home", func() {
		t.Setenv("KUBECONFIG", "")
		write(t, home, contexts)
	})
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := client.LoadConfigContext("", "other"); err == nil || !strings.Contains(err.Error(), `cannot use the context "other": in a pod, the service account is used, which has no contexts; set KUBECONFIG`) {
		t.Errorf("in a pod: %v", err)
	}
	testkit.Equal(t, testkit.Err(client.LoadConfigContext(path, "other")), nil, "in a pod, with a path")
	empty := write(t, filepath.Join(t.TempDir(), "empty"), "")
	testkit.ErrorContains(t, testkit.Err(client.LoadConfigContext(empty, "other")), "has no contexts, or does not exist")
}

func TestLoadConfigErrors(t *testing.T) {
	dir := t.TempDir()
	broken := write(t, filepath.Join(dir, "broken"), "clusters: [")
	dangling := write(t, filepath.Join(dir, "dangling"), strings.Replace(kubeconfig, "current-context: x", "current-context: gone", 1))
	empty := write(t, filepath.Join(dir, "empty"), "")
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		path, env string
		inPod     bool
		want      []string
	}{
		"path missing":           {path: missing, want: []string{"cannot read the kubeconfig", missing, "give the path"}},
		"path broken":            {path: broken, want: []string{"cannot use the kubeconfig", broken}},
		"path dangling":          {path: dangling, want: []string{"cannot use the kubeconfig", dangling, "context: gone"}},
		"path empty":             {path: empty, want: []string{"no cluster is configured in the kubeconfig", empty}},
		"path empty in a pod":    {path: empty, inPod: true, want: []string{"no cluster is configured in the kubeconfig", empty}},
		"KUBECONFIG missing":     {env: missing, want: []string{missing, "does not exist"}},
		"KUBECONFIG broken":      {env: broken, want: []string{"cannot use the kubeconfig", broken}},
		"nothing anywhere":       {want: []string{"no cluster is configured", "set KUBECONFIG", "config"}},
		"a pod without a token":  {inPod: true, want: []string{"cannot use the pod's service account", "token"}},
		"KUBECONFIG before pods": {env: broken, inPod: true, want: []string{broken}},
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere(t)
			t.Setenv("KUBECONFIG", c.env)
			if c.inPod {
				t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
				t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			}
			_, err := client.LoadConfig(c.path)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				testkit.ErrorContains(t, err, want)
			}
			testkit.NotContains(t, fmt.Sprint(err), "\n")
		})
	}
}
