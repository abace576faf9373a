// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/server"
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
	// Rules are the operations and resources. Default: those of the Go type and of the Validator's
	// functions; create and update for Default.
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

// Webhooks are the webhooks of a process. New makes them.
type Webhooks struct {
	o           Options
	conversions conversions // it has a lock of its own
	policies    policies    // it has a lock of its own

	mu    sync.Mutex // guards what follows
	wrong []error
}

// New makes webhooks. It starts nothing. Validate returns the mistakes of the options.
func New(o Options) *Webhooks { return &Webhooks{o: o} }

// Validate returns the mistakes of the options and of the calls that added webhooks.
func (w *Webhooks) Validate() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.wrong...)
}

// Server implements manager.Webhooks.
func (w *Webhooks) Server() server.Options { return w.o.Server }

// Handler implements manager.Webhooks.
func (w *Webhooks) Handler(hooks *hook.Webhook) http.Handler { return http.NotFoundHandler() }

// Run implements manager.Webhooks.
func (w *Webhooks) Run(ctx context.Context, c *client.Client, r *events.Recorder) error {
	<-ctx.Done()
	return nil
}

// Check implements manager.Webhooks.
func (w *Webhooks) Check(ctx context.Context) error { return nil }
