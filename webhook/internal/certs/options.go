// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options configures New. The fields are as in webhook.CertificateOptions.
type Options struct {
	Secret       types.NamespacedName
	DNSNames     []string
	CALifetime   time.Duration
	LeafLifetime time.Duration
	Skew         time.Duration
	Propagation  time.Duration
	FieldOwner   string
}

// Kind is the kind of a Target.
type Kind string

// The kinds of a Target.
const (
	Validating               Kind = "ValidatingWebhookConfiguration"
	Mutating                 Kind = "MutatingWebhookConfiguration"
	CustomResourceDefinition Kind = "CustomResourceDefinition"
)

func (k Kind) gvk() schema.GroupVersionKind {
	group := "admissionregistration.k8s.io"
	if k == CustomResourceDefinition {
		group = "apiextensions.k8s.io"
	}
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: string(k)}
}

// Target is an object with bundles: a webhook configuration has one for each webhook, a
// CustomResourceDefinition has one for its conversion.
type Target struct {
	// Kind is Validating, Mutating or CustomResourceDefinition.
	Kind Kind
	// Name is the object's name.
	Name string
}

// String returns the kind and the name.
func (t Target) String() string { return string(t.Kind) + " " + t.Name }

// Validate returns an error that names each wrong field, or nil.
func (o Options) Validate() error {
	var wrong []error
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if o.Secret.Name == "" || o.Secret.Namespace == "" {
		add("Secret is %q; set its namespace and its name", o.Secret)
	}
	if len(o.DNSNames) == 0 {
		add("DNSNames is empty; set the name of the Service: NAME.NAMESPACE.svc")
	}
	for _, name := range o.DNSNames {
		if problems := validation.IsDNS1123Subdomain(name); net.ParseIP(name) == nil && len(problems) > 0 {
			add("DNSNames: %q is neither a DNS name nor an IP address: %s", name, problems[0])
		}
	}
	for name, d := range map[string]time.Duration{
		"CALifetime": o.CALifetime, "LeafLifetime": o.LeafLifetime, "Skew": o.Skew, "Propagation": o.Propagation,
	} {
		if d < 0 {
			add("%s is %s; it must not be negative", name, d)
		}
	}
	return errors.Join(append(wrong, o.withDefaults().validateTimes())...)
}

// validateTimes returns an error unless a rotation ends while the old CA can sign.
func (o Options) validateTimes() error {
	var wrong []error
	if o.LeafLifetime > o.CALifetime {
		wrong = append(wrong, fmt.Errorf("LeafLifetime: %s is longer than CALifetime, %s; a leaf cannot outlive its CA", o.LeafLifetime, o.CALifetime))
	}
	if o.LeafLifetime <= 4*o.Skew {
		wrong = append(wrong, fmt.Errorf("LeafLifetime: %s is too short for a Skew of %s; use more than four times Skew", o.LeafLifetime, o.Skew))
	}
	if least := o.Propagation + 4*o.Skew; o.CALifetime/2 <= least {
		wrong = append(wrong, fmt.Errorf("CALifetime: %s is too short; a rotation has half of it, which must be longer than Propagation and four times Skew, %s",
			o.CALifetime, least))
	}
	if o.LeafLifetime < 2*time.Second {
		wrong = append(wrong, fmt.Errorf("LeafLifetime: %s is too short; certificates count in seconds, use at least 2s", o.LeafLifetime))
	}
	return errors.Join(wrong...)
}

func (o Options) withDefaults() Options {
	o.CALifetime = cmp.Or(o.CALifetime, 90*24*time.Hour)
	o.LeafLifetime = cmp.Or(o.LeafLifetime, min(24*time.Hour, o.CALifetime))
	o.Skew, o.Propagation = cmp.Or(o.Skew, time.Minute), cmp.Or(o.Propagation, time.Minute)
	o.FieldOwner = cmp.Or(o.FieldOwner, "setpoint-webhook-certificates")
	return o
}
