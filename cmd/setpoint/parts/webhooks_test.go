// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"crypto/tls"
	"net"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// TestWebhooks_HaveTheirRights: config/rbac has what the certificates need.
func TestWebhooks_HaveTheirRights(t *testing.T) {
	mgr := manager.New(account(t, startCluster(t)), manager.Options{Name: name, Logger: logger(t)})
	if err := addWebhooks(mgr, "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	run(t, mgr)
	if rights := mgr.Rights(t.Context()); len(rights.Missing) > 0 || rights.Error != "" {
		t.Errorf("config/rbac lacks %v, error %q", rights.Missing, rights.Error)
	}
}

// withWebhooks runs a test twice: against a simulated API server, which calls the webhooks in
// memory, and against a real one. The operator does not run.
func withWebhooks(t *testing.T, test func(t *testing.T, c *client.Client)) {
	t.Helper()
	t.Run("sim", func(t *testing.T) { test(t, admin(t, simWithWebhooks(t))) })
	t.Run("control plane", func(t *testing.T) {
		cfg := startCluster(t).Config()
		serveWebhooks(t, cfg)
		test(t, admin(t, cfg))
	})
}

func simWithWebhooks(t *testing.T) *rest.Config {
	t.Helper()
	certificate, ca, err := envtest.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	hooks := webhooksWith(t, certificate, nil)
	api := sim.New(t, scheme.Scheme) // the other kinds are in CRDs
	api.UseWebhooks(hooks.Handler(nil))
	install(t, api.Config(), hooks, "operator.test:443", ca)
	return api.Config()
}

// serveWebhooks makes the API server call webhooks of the test.
func serveWebhooks(t *testing.T, cfg *rest.Config) {
	t.Helper()
	certificate, ca, err := envtest.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hooks := webhooksWith(t, certificate, listener)
	mgr := manager.New(cfg, manager.Options{Name: "webhooks", Logger: logger(t)})
	hooks.AddTo(mgr)
	run(t, mgr)
	install(t, cfg, hooks, listener.Addr().String(), ca)
}

func webhooksWith(t *testing.T, certificate tls.Certificate, listener net.Listener) *webhook.Webhooks {
	t.Helper()
	hooks, err := newWebhooks(webhook.Options{Server: server.Options{
		Listener:       listener,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	return hooks
}

// install registers the webhooks, at an address of the test.
func install(t *testing.T, cfg *rest.Config, hooks *webhook.Webhooks, address string, ca []byte) {
	t.Helper()
	manifests, err := hooks.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, obj := range manifests {
		objects = append(objects, obj)
	}
	for _, w := range []envtest.Webhooks{{Paths: crds()}, {Objects: objects}} {
		w.Address, w.CABundle = address, ca
		if _, err := envtest.InstallWebhooks(t.Context(), cfg, w); err != nil {
			t.Fatal(err)
		}
	}
}

// readSample reads an object from a file.
func readSample(t *testing.T, file string, obj client.Object) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, obj); err != nil {
		t.Fatal(err)
	}
}
