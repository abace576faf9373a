// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// Certificates returns Setpoint's options for certificates that rotate every 3 to 4 seconds.
func Certificates() webhook.CertificateOptions {
	return webhook.CertificateOptions{CALifetime: 8 * time.Second, LeafLifetime: 8 * time.Second, Skew: 100 * time.Millisecond, Propagation: 1500 * time.Millisecond}
}

// Setpoint is a replica of an operator with webhooks, until ctx ends. It prints its address to out
// when it is ready, and each CA that it uses.
func Setpoint(ctx context.Context, r Replica, o webhook.CertificateOptions, out io.Writer) error {
	cfg, err := client.LoadConfig(r.Kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := lampScheme()
	if err != nil {
		return err
	}
	var open net.ListenConfig
	l, err := open.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	health, err := open.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	seen := hook.On(func(c *hook.WebhookCertificate) {
		if c.CA {
			_, _ = fmt.Fprintln(out, "ca", c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
		}
	})
	hooks := webhook.New(webhook.Options{
		Name: Name, Scheme: scheme, Service: types.NamespacedName{Namespace: r.Namespace, Name: Service}, ServicePort: r.Port,
		Server: server.Options{Listener: l}, Certificates: o, Register: true,
	})
	webhook.AddValidator(hooks, webhook.Validator[*Lamp]{
		Create: validate, Update: func(ctx context.Context, _, l *Lamp) error { return validate(ctx, l) },
	}, webhook.Registration{Name: Name, Timeout: longestCall})
	webhook.AddConversion(hooks, fromAlpha, toAlpha)
	m := manager.New(cfg, manager.Options{
		Name: "lamps", Scheme: scheme, Hook: seen,
	})
	server.AddHealth(m, server.Options{Listener: health})
	// Like hooks.AddTo, but the answers close their connections.
	recorder := events.For(m, events.Options{})
	server.Add(m, hooks.Server()).Handle("/", Closing(hooks.Handler(m.Hook())))
	m.AddEverywhere("webhooks", func(ctx context.Context) error { return hooks.Run(ctx, m.Client(), recorder) })
	m.AddReadyzCheck("webhooks", hooks.Check)
	var printing sync.WaitGroup
	defer printing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	printing.Go(func() {
		if awaitReady(ctx, "http://"+health.Addr().String()+"/readyz") == nil {
			_, _ = fmt.Fprintln(out, "ready", l.Addr())
		}
	})
	return m.Run(ctx)
}

// awaitReady waits for the status 200, as the kubelet does.
func awaitReady(ctx context.Context, url string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := run.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
