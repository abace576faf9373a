// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	// Like goleak.VerifyTestMain, but after the shared control plane has ended.
	for _, err := range []error{stopShared(), goleak.Find()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

func encodePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(name, []byte(content), 0o600))
}

// plugin is a credential plugin that returns one token.
func plugin(t *testing.T, token string) *api.ExecConfig {
	t.Helper()
	answer := t.TempDir() + "/answer.json"
	writeFile(t, answer, `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "`+token+`"}}`)
	return &api.ExecConfig{
		Command: "cat", Args: []string{answer}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode,
	}
}
