// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook/certs"
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
	// Server configures the server. Default: port 9443, HTTP/1.1 only as in other operators, and
	// certificates of our own unless it has files.
	Server server.Options
	// Certificates configures the certificates that the process manages, see package webhook/certs.
	// Defaults: the Secret NAME-webhook-ca in the namespace of Service, or in the namespace default
	// with URL; the host of Service or URL; the objects of Manifests. Not used if Server has a
	// certificate.
	Certificates certs.Options
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

// Webhooks are the webhooks of a process. New makes them. Add webhooks before the manager runs.
type Webhooks struct {
	o     Options
	added chan struct{} // has an element when a webhook was added too late
	certs *certs.Certs  // nil: the server has certificates of its own

	mu         sync.RWMutex         // guards what follows
	endpoints  map[string]*endpoint // by path
	admissions []*admission         // in the order of the calls
	hubs       map[schema.GroupKind]hub
	policies   []*unstructured.Unstructured
	wrong      []error
	missing    map[string]error // the registrations that were looked at; nil is in place
	running    bool
	hooks      *hook.Webhook
}

// New makes webhooks. It starts nothing. Validate returns the mistakes of the options.
func New(o Options) *Webhooks {
	w := &Webhooks{o: o, added: make(chan struct{}, 1), endpoints: map[string]*endpoint{}}
	w.certs = w.newCertificates()
	return w
}

// Validate returns the mistakes of the options and of the calls that added webhooks.
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

// add calls register under the lock. Its error is a mistake of the call, such as Default.
func (w *Webhooks) add(call string, register func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := register()
	if w.running && err == nil {
		err = errors.New("the manager runs already, and the API server may not know the webhook; add webhooks before Run")
	}
	if err == nil {
		return
	}
	w.wrong = append(w.wrong, fmt.Errorf("webhook.%s: %w", call, err))
	select {
	case w.added <- struct{}{}:
	default:
	}
}

// mountLocked adds an endpoint.
func (w *Webhooks) mountLocked(e *endpoint) error {
	if w.endpoints[e.path] != nil {
		return fmt.Errorf("two webhooks are named %q; set Registration.Name to a name of its own", e.name)
	}
	w.endpoints[e.path] = e
	return nil
}

// endpoint returns the endpoint of a path, or nil.
func (w *Webhooks) endpoint(path string) *endpoint {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.endpoints[path]
}

// Server implements manager.Webhooks.
func (w *Webhooks) Server() server.Options {
	o := w.o.Server
	o.DisableHTTP2 = true // CVE-2023-44487: a client without a certificate could open many streams
	if w.certs != nil {
		o.GetCertificate = w.certs.GetCertificate
	}
	return o
}

// Handler implements manager.Webhooks. The handler serves each webhook at a path that is its name,
// such as /validate.websites.web.example.com. It answers also for webhooks that are added later.
func (w *Webhooks) Handler(hooks *hook.Webhook) http.Handler {
	w.mu.Lock()
	w.hooks = hooks
	w.mu.Unlock()
	return newHandler(w, hooks)
}

// Run implements manager.Webhooks. It returns an error if a webhook is added while it runs.
func (w *Webhooks) Run(ctx context.Context, c *client.Client, r *events.Recorder) error {
	w.mu.Lock()
	w.running = true
	err := errors.Join(w.wrong...)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	if w.o.Register {
		running.Go(func() { w.register(ctx, c, r) })
	}
	if w.certs != nil {
		running.Go(func() { _ = w.certs.Run(ctx, c, r) }) // Validate has reported its errors
	}
	select {
	case <-ctx.Done():
		return nil
	case <-w.added:
		return w.Validate()
	}
}

// Check implements manager.Webhooks. It names each registration and each bundle that is not in
// place.
func (w *Webhooks) Check(ctx context.Context) error {
	var err error
	if w.certs != nil {
		err = w.certs.Check(ctx)
	}
	if err != nil && !errors.As(err, new(server.Remark)) {
		return err
	}
	return cmp.Or(w.checkRegistrations(), err) // joined with a remark, an error would pass
}
