// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"context"
	"crypto/tls"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/webhook/certs"
)

// A server with handlers of its own gets certificates that rotate, and the API server their CAs.
// Package webhook does this for its own server.
func Example() {
	serve := func(ctx context.Context, c *client.Client, handler http.Handler) error {
		managed := certs.New(certs.Options{
			Secret:   types.NamespacedName{Namespace: "website-system", Name: "website-webhook-ca"},
			DNSNames: []string{"website-webhook.website-system.svc"},
			Targets: func() []certs.Target {
				return []certs.Target{{Kind: certs.Validating, Name: "website-operator"}}
			},
		})
		server := &http.Server{Addr: ":9443", Handler: handler, TLSConfig: &tls.Config{
			GetCertificate: managed.GetCertificate, MinVersion: tls.VersionTLS12,
		}}
		ctx, cancel := context.WithCancel(ctx)
		failed := make(chan error, 1)
		go func() {
			failed <- server.ListenAndServeTLS("", "")
			cancel()
		}()
		err := managed.Run(ctx, c, nil) // on every replica
		_ = server.Close()
		if stopped := <-failed; err == nil && stopped != http.ErrServerClosed {
			err = stopped
		}
		return err
	}
	_ = serve // in main
}
