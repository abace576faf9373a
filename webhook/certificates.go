// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"net/url"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/webhook/certs"
)

// managed reports whether the process manages its certificates.
func (o *Options) managed() bool {
	s := o.Server
	return s.CertDir == "" && s.CertFile == "" && s.KeyFile == "" && s.GetCertificate == nil && !s.Plain
}

// certificates returns Options.Certificates with its defaults.
func (o *Options) certificates() certs.Options {
	c := o.Certificates
	c.Secret.Name = cmp.Or(c.Secret.Name, o.Name+"-webhook-ca")
	c.Secret.Namespace = cmp.Or(c.Secret.Namespace, o.Service.Namespace, "default")
	c.FieldOwner = cmp.Or(c.FieldOwner, o.Name+"-certificates")
	if len(c.DNSNames) == 0 {
		c.DNSNames = []string{o.Service.Name + "." + o.Service.Namespace + ".svc"}
		if to, err := url.Parse(o.URL); err == nil && o.URL != "" {
			c.DNSNames = []string{to.Hostname()}
		}
	}
	return c
}

// newCertificates returns nil if the server has certificates of its own.
func (w *Webhooks) newCertificates() *certs.Certs {
	if !w.o.managed() {
		return nil
	}
	o := w.o.certificates()
	if o.Targets == nil {
		o.Targets = w.targets
	}
	given := o.Hooks
	o.Hooks = &hook.Webhook{Certificate: func(c hook.WebhookCertificate) {
		w.mu.RLock()
		hooks := w.hooks
		w.mu.RUnlock()
		for _, h := range []*hook.Webhook{given, hooks} {
			if h != nil && h.Certificate != nil {
				h.Certificate(c)
			}
		}
	}}
	return certs.New(o)
}

// targets returns the objects whose bundles have the CAs. Validate has reported errors.
func (w *Webhooks) targets() (all []certs.Target) {
	objects, _ := w.Manifests()
	for _, obj := range objects {
		switch kind := certs.Kind(obj.GetKind()); kind {
		case certs.Validating, certs.Mutating, certs.CustomResourceDefinition:
			all = append(all, certs.Target{Kind: kind, Name: obj.GetName()})
		}
	}
	return all
}
