// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/e2e/rotation"
)

// certController is a replica whose certificates are from cert-controller, until ctx ends. As in
// Gatekeeper, every replica rotates, and the webhook server starts when the certificate is ready.
func certController(ctx context.Context, r rotation.Replica) error {
	crlog.SetLogger(logr.FromSlogHandler(newLogHandler()))
	cfg, err := client.LoadConfig(r.Kubeconfig)
	if err != nil {
		return err
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "certs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		WebhookServer: crwebhook.NewServer(crwebhook.Options{
			Host: "127.0.0.1", Port: port, CertDir: dir, TLSOpts: []func(*tls.Config){withoutHTTP2},
		}),
	})
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	if err := rotator.AddRotator(mgr, rotatorOf(r, dir, ready)); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kubelet := &secretFiles{dir: dir, key: types.NamespacedName{Namespace: r.Namespace, Name: rotation.Secret}}
	running.Go(func() {
		if err := kubelet.run(ctx, cfg); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			cancel()
		}
	})
	running.Go(func() {
		select {
		case <-ready:
			serveWhenReady(ctx, mgr, port)
		case <-ctx.Done():
		}
	})
	return mgr.Start(ctx)
}

// withoutHTTP2 is in the main function that kubebuilder generates.
func withoutHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

func rotatorOf(r rotation.Replica, dir string, ready chan struct{}) *rotator.CertRotator {
	return &rotator.CertRotator{
		SecretKey: types.NamespacedName{Namespace: r.Namespace, Name: rotation.Secret},
		CertDir:   dir, CAName: "lamps-ca", CAOrganization: "lamps", DNSName: rotation.Service + "." + r.Namespace + ".svc", IsReady: ready,
		Webhooks:       []rotator.WebhookInfo{{Name: rotation.Name, Type: rotator.Validating}, {Name: rotation.Name, Type: rotator.CRDConversion}},
		CaCertDuration: 30 * time.Second, ServerCertDuration: 30 * time.Second, LookaheadInterval: 26 * time.Second,
		RotationCheckFrequency: 500 * time.Millisecond,
	}
}

// serveWhenReady registers the webhooks, and prints the address when the server runs.
func serveWhenReady(ctx context.Context, mgr manager.Manager, port int) {
	hooks := mgr.GetWebhookServer()
	handler := rotation.Closing(rotation.Handler())
	hooks.Register(rotation.ValidatePath, handler)
	hooks.Register(rotation.ConvertPath, handler)
	started := hooks.StartedChecker()
	for started(nil) != nil {
		select {
		case <-time.After(50 * time.Millisecond): // as the kubelet does
		case <-ctx.Done():
			return
		}
	}
	fmt.Println("ready", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// secretFiles writes a Secret to files at once, and replaces them as the kubelet does: by a rename
// of the symbolic link ..data.
type secretFiles struct {
	dir     string
	key     types.NamespacedName
	current string
}

func (s *secretFiles) write(secret *corev1.Secret) error {
	if len(secret.Data) == 0 {
		return nil
	}
	next, err := os.MkdirTemp(s.dir, "..")
	if err != nil {
		return err
	}
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(next, name), data, 0o600); err != nil {
			return err
		}
	}
	link := filepath.Join(s.dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(next), link); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(s.dir, "..data")); err != nil {
		return err
	}
	for name := range secret.Data {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(s.dir, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	old := s.current
	s.current = next
	if old == "" {
		return nil
	}
	return os.RemoveAll(old)
}

// run writes the files until ctx ends.
func (s *secretFiles) run(ctx context.Context, cfg *rest.Config) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	only := client.ListOptions{Namespace: s.key.Namespace, Fields: fields.OneTermEqualSelector("metadata.name", s.key.Name)}
	for event, err := range client.For[*corev1.Secret](c).WatchLive(ctx, only) {
		if err != nil {
			return err
		}
		if event.Type == watch.Added || event.Type == watch.Modified {
			if err := s.write(event.Object); err != nil {
				return err
			}
		}
	}
	return nil
}
