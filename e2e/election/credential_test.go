// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
)

// asPlugin makes a process an exec credential plugin. Its value is the plugin's directory.
const asPlugin = "SETPOINT_PLUGIN"

// Files of a plugin.
const (
	certificate = "tls.crt"
	key         = "tls.key"
	hangs       = "hangs" // while it exists, the plugin waits at the gate
	gate        = "gate"
)

// plug runs a plugin and returns its exit status. The credential is valid for a second, so
// client-go asks often.
func plug(dir string) int {
	if _, err := os.Stat(filepath.Join(dir, hangs)); err == nil {
		_, _ = os.ReadFile(filepath.Join(dir, gate)) // blocks until plugin.mend
	}
	cert, err := os.ReadFile(filepath.Join(dir, certificate))
	private, err2 := os.ReadFile(filepath.Join(dir, key))
	if err := errors.Join(err, err2); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	until := metav1.NewTime(time.Now().Add(time.Second))
	err = json.NewEncoder(os.Stdout).Encode(&authentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: authentication.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   &authentication.ExecCredentialStatus{ExpirationTimestamp: &until, ClientCertificateData: string(cert), ClientKeyData: string(private)},
	})
	if err != nil {
		return 1
	}
	return 0
}
