// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook/internal/certs"
)

// New makes webhooks. It starts nothing. Validate returns the mistakes of the options.
func New(o Options) *Webhooks {
	w := &Webhooks{
		o: o, added: make(chan struct{}, 1), endpoints: map[string]*endpoint{},
		bodies: newBudget(bodyBudget, smallBody), objects: newBudget(objectBudget, smallObject),
	}
	w.certs = w.newCertificates()
	return w
}

// Validate returns the mistakes of the options and of the calls that added webhooks, or nil.
func (w *Webhooks) Validate() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	wrong := append([]error{w.o.Validate()}, w.wrong...)
	for _, a := range w.admissions {
		wrong = append(wrong, a.validate())
	}
	wrong = append(wrong, w.validatePoliciesLocked())
	return errors.Join(wrong...)
}

// linger is the default of Options.Server.Linger. API servers keep connections, and do not repeat a
// request that a closed connection has lost.
const linger = time.Second

// AddTo makes a manager answer webhooks, on a TLS server of its own, with the check "webhooks" of
// /readyz. It answers on standbys, too, and before caches are synced. Call it before the manager's
// Run, which returns mistakes as errors.
func (w *Webhooks) AddTo(m *manager.Manager) {
	w.mu.Lock()
	if w.hosted {
		w.wrong = append(w.wrong, errors.New("AddTo: the webhooks were added to a manager before; make others with webhook.New"))
	}
	w.hosted = true
	w.mu.Unlock()
	o := w.Server()
	o.Client = m.Client()
	s, _ := server.New(o) // Validate has the error
	s.Handle("/", w.Handler(m.Hook()))
	recorder := events.For(m, w.o.Events)
	m.AddServer(validated{s, w})
	m.AddEverywhere("webhooks", func(ctx context.Context) error { return w.Run(ctx, m.Client(), recorder) })
	m.AddReadyzCheck("webhooks", w.Check)
}

// validated is the server, with the mistakes of the webhooks.
type validated struct {
	*server.Server

	webhooks *Webhooks
}

// Validate implements manager.Server.
func (v validated) Validate() error { return errors.Join(v.Server.Validate(), v.webhooks.Validate()) }

// Needs implements rbac.Needer.
func (v validated) Needs() []rbac.Need { return append(v.Server.Needs(), v.webhooks.Needs()...) }

// Server returns the options of the server, for a program without a manager.
func (w *Webhooks) Server() server.Options {
	o := w.o.Server
	o.Name = cmp.Or(o.Name, "webhook server")
	if o.Address == "" && o.Listener == nil {
		o.Address = ":9443"
	}
	o.DisableHTTP2 = true // CVE-2023-44487: a client without a certificate could open many streams
	o.Linger = cmp.Or(o.Linger, linger)
	if w.certs != nil {
		o.GetCertificate = w.certs.GetCertificate
	}
	return o
}

// Handler returns the server's handler, which reports to h. Call it once. It serves each
// webhook at a path that is its name, such as /validate.websites.web.example.com. It answers also
// for webhooks that are added later.
func (w *Webhooks) Handler(h *hook.Hook) http.Handler {
	w.mu.Lock()
	w.hook = h
	w.mu.Unlock()
	return newHandler(w, h)
}

// Run keeps certificates and registrations for the API server until ctx ends, on every replica. It
// returns an error if a webhook is added while it runs. It logs a warning for each webhook that
// could keep nodes from becoming ready: see Manifests.
func (w *Webhooks) Run(ctx context.Context, c *client.Client, r *events.Recorder) error {
	w.mu.Lock()
	w.running = true
	err, h := errors.Join(w.wrong...), w.hook
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for _, a := range w.declared() {
		if blocksNodes(a) {
			logging.Of(ctx).Warn("while this webhook does not answer, the API server rejects the Pods that make a node ready; "+
				"exclude kube-system by NamespaceSelector, or Pods with hostNetwork by MatchConditions", "webhook", a.name)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if w.o.Register {
		running.Go(func() { register(ctx, w, c, r) })
	}
	if w.certs != nil {
		// Validate has reported its errors.
		running.Go(func() { _ = w.certs.Run(ctx, c, r, h, w.targets()...) })
	}
	select {
	case <-ctx.Done():
		return nil
	case <-w.added:
		return w.Validate()
	}
}

// Check fails until the API server's calls can succeed. It names each registration and bundle that
// is missing or wrong.
func (w *Webhooks) Check(ctx context.Context) error {
	var err error
	if w.certs != nil {
		err = w.certs.Check(ctx)
	}
	if err != nil && !errors.As(err, new(manager.Remark)) {
		return err
	}
	return cmp.Or(checkRegistrations(w), err) // joined with a remark, an error would pass
}

// newCertificates returns nil if the server has certificates of its own.
func (w *Webhooks) newCertificates() *certs.Certs {
	if !w.o.managed() {
		return nil
	}
	return certs.New(certs.Options(w.o.certificates()))
}

// targets returns the objects whose bundles have the CAs. Validate has reported errors.
func (w *Webhooks) targets() (all []certs.Target) {
	objects, _ := w.Manifests()
	for _, obj := range objects {
		if hasBundle(obj) {
			all = append(all, certs.Target{Kind: certs.Kind(obj.GetKind()), Name: obj.GetName()})
		}
	}
	return all
}
