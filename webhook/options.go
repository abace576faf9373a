// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook/internal/certs"
)

// Options configures New. Name, Scheme and one of Service and URL are required.
type Options struct {
	// Name is the name of the webhook configurations, and the start of the field owner.
	Name string
	// Scheme maps kinds to Go types.
	Scheme *runtime.Scheme
	// Service is the Service in front of the replicas. Its namespace is the operator's own.
	Service types.NamespacedName
	// ServicePort is the port of the Service. Default: 443.
	ServicePort int32
	// URL replaces Service for a process outside the cluster: https://HOST:PORT. Default: none.
	URL string
	// Server configures the server, which speaks HTTP/1.1 only, as in other operators. Default:
	// port 9443, a Linger of 1 s, and certificates that the process manages, unless files are set.
	Server server.Options
	// Certificates configures the certificates that the process manages. Not used if Server has a
	// certificate.
	Certificates CertificateOptions
	// Events configures the events about registrations and certificates, which are cluster-scoped:
	// see events.Options.Namespace. Default: as events.For.
	Events events.Options
	// Plurals are the names of resources by their kinds, as in the CRDs. Default: as most CRD
	// generators name them, except that any -y becomes -ies. So the kind Gateway needs an entry.
	Plurals map[schema.GroupKind]string
	// Register applies the registrations at the start and restores them. Default: false, apply
	// Manifests with the deployment.
	Register bool
}

// Registration describes when the API server calls a webhook. The zero value works for Default and
// Validate.
type Registration struct {
	// Name is the name of the webhook. Default: VERB.RESOURCE.GROUP, such as
	// validate.websites.web.example.com.
	Name string
	// Rules are the operations and resources. Default: the resource of the Go type, with the
	// operations of the Validator's functions; create and update for Default.
	Rules []admissionregistrationv1.RuleWithOperations
	// FailurePolicy applies if the call fails. Default: Fail.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout is how long the API server waits, 1 s to 30 s in whole seconds. Default: 10 s.
	Timeout time.Duration
	// MatchPolicy is Exact or Equivalent. Default: Equivalent.
	MatchPolicy admissionregistrationv1.MatchPolicyType
	// NamespaceSelector and ObjectSelector narrow the rules. Default: everything outside the
	// operator's namespace.
	NamespaceSelector, ObjectSelector *metav1.LabelSelector
	// MatchConditions are CEL expressions that narrow the rules. Default: none.
	MatchConditions []admissionregistrationv1.MatchCondition
	// SideEffects reports that the function changes something, except in a dry run. Default: false.
	SideEffects bool
	// Reinvocation is Never or IfNeeded, for mutating webhooks. Default: Never.
	Reinvocation admissionregistrationv1.ReinvocationPolicyType
}

// CertificateOptions configures the certificates that a process manages, and their rotation.
type CertificateOptions struct {
	// Secret is the Secret with the CAs, of the type Opaque. A replica creates it. Default:
	// NAME-webhook-ca in the namespace of Service, or in the namespace default with URL.
	Secret types.NamespacedName
	// DNSNames are the names and IP addresses of the server. Default: the host of Service or URL.
	DNSNames []string
	// CALifetime is how long a CA is valid. Rotation begins at half of it. Default: 90 days.
	CALifetime time.Duration
	// LeafLifetime is how long a server certificate is valid. It is renewed at half of it, or when
	// its CA is replaced. Default: 24 hours, or CALifetime if that is shorter.
	LeafLifetime time.Duration
	// Skew is the largest difference between two clocks of replicas and API servers. A new
	// certificate is valid as if it was made this much earlier. Default: 1 minute.
	Skew time.Duration
	// Propagation is how long replicas wait, after all bundles have a new CA, until they sign with
	// it. API servers that lag longer rely on cross-signed certificates. Default: 1 minute.
	Propagation time.Duration
	// FieldOwner owns the bundles, and nothing else. Default: NAME-certificates.
	FieldOwner string
}

// Validate returns an error that names each wrong field, or nil.
func (o Options) Validate() error {
	var wrong []error
	if o.Scheme == nil {
		wrong = append(wrong, errors.New("webhook.Options.Scheme: it is nil; set the scheme that has the types of the webhooks"))
	}
	if len(validation.IsDNS1123Subdomain(o.Name)) > 0 {
		wrong = append(wrong, fmt.Errorf("webhook.Options.Name: %q is not a name for an object; use lower case letters, digits, '-' and '.'", o.Name))
	}
	if o.ServicePort < 0 || o.ServicePort > 65535 {
		wrong = append(wrong, fmt.Errorf("webhook.Options.ServicePort: %d is not a port; use 1 to 65535", o.ServicePort))
	}
	for kind, plural := range o.Plurals {
		if len(validation.IsDNS1035Label(plural)) > 0 {
			wrong = append(wrong, fmt.Errorf("webhook.Options.Plurals: %q is not the name of a resource for the kind %s; use spec.names.plural of its CRD", plural, kind))
		}
	}
	switch to, err := url.Parse(o.URL); {
	case o.URL == "" && (o.Service.Namespace == "" || o.Service.Name == ""):
		wrong = append(wrong, errors.New("webhook.Options.Service: the namespace or the name is empty; set both, or set URL for a process outside the cluster"))
	case o.URL != "" && (err != nil || to.Scheme != "https" || to.Host == "" || to.RawQuery != "" || to.Fragment != "" || to.User != nil):
		wrong = append(wrong, fmt.Errorf("webhook.Options.URL: %q is not like https://HOST:PORT", o.URL))
	}
	if len(wrong) == 0 && o.managed() {
		if err := certs.Options(o.certificates()).Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("webhook.Options.Certificates: %w", err))
		}
	}
	return errors.Join(wrong...)
}

// plural returns the name of a kind's resource.
func (o *Options) plural(kind schema.GroupKind) string {
	guess, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	return cmp.Or(o.Plurals[kind], guess.Resource)
}

func (o *Options) managed() bool {
	s := o.Server
	return s.CertDir == "" && s.CertFile == "" && s.KeyFile == "" && s.GetCertificate == nil && !s.Plain
}

// certificates returns Options.Certificates with its defaults.
func (o *Options) certificates() CertificateOptions {
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
