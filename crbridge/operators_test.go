// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// operator is a published operator whose reconcilers run unchanged, in a module of testdata.
type operator struct {
	module string
	// patches are edits of other files, which do not compile with this version of
	// controller-runtime: from the first text to the second, by file.
	patches map[string][2]string
}

var operators = map[string]operator{
	"cassandra": {"github.com/k8ssandra/cass-operator", map[string][2]string{
		"internal/webhooks/cassandra/v1beta1/cassandradatacenter_webhook.go": {`NewWebhookManagedBy(mgr).For(&api.CassandraDatacenter{}).
		WithValidator(&CassandraDatacenterCustomValidator{}).
		WithDefaulter(`, `NewWebhookManagedBy(mgr, runtime.Object(&api.CassandraDatacenter{})).
		WithCustomValidator(&CassandraDatacenterCustomValidator{}).
		WithCustomDefaulter(`},
		"pkg/mocks/helper.go": {`type mockConstructorTestingTNewClient `, `func (*SubResourceClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error { return nil }
func (*Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error { return nil }

type mockConstructorTestingTNewClient `},
	}},
	"memcached": {module: "github.com/c5c3/memcached-operator"},
	"sandbox":   {module: "sigs.k8s.io/agent-sandbox"},
}

// TestOperators runs each operator with controller-runtime and at both levels. It takes minutes.
func TestOperators(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("set SETPOINT_FULL=1")
	}
	for name, o := range operators {
		t.Run(name, func(t *testing.T) {
			in := "testdata/" + name
			if out, err := command(t, in, "go", "mod", "download", o.module).CombinedOutput(); err != nil {
				t.Fatalf("downloading %s: %v, %s", o.module, err, out)
			}
			out, err := command(t, in, "go", "list", "-m", "-f", "{{.Dir}}", o.module).Output()
			dir := strings.TrimSpace(string(out))
			if err != nil || dir == "" {
				t.Fatalf("finding the source of %s: %v, %s", o.module, err, out)
			}
			cmd := command(t, in, "go", "test", "-count=1", "-v", "-modfile="+o.patched(t, in, dir), ".")
			cmd.Env = append(cmd.Env, "OPERATOR_DIR="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", cmd, err, out[max(0, len(out)-20000):])
			}
		})
	}
}

// patched copies the source, patches the copy, and returns a go.mod that uses it.
func (o operator) patched(t *testing.T, in, source string) string {
	t.Helper()
	to := t.TempDir()
	testkit.NoError(t, os.CopyFS(to, os.DirFS(source)))
	for name, p := range o.patches {
		file := filepath.Join(to, name)
		edit(t, file, p[0], p[1])
		if strings.Contains(p[1], "context.") {
			edit(t, file, "import (", "import (\n\t\"context\"\n\t\"k8s.io/apimachinery/pkg/runtime\"")
		}
	}
	mod := filepath.Join(t.TempDir(), "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(in, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(filepath.Dir(mod), name), text, 0o600)
		}
		testkit.NoError(t, err)
	}
	edit(t, mod, "replace (\n", "replace (\n\t"+o.module+" => "+to+"\n")
	return mod
}

func command(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	return cmd
}
