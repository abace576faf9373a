// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// Backend is the part of a client that lists and watches. See cache.Backend.
type Backend interface {
	Scheme() *runtime.Scheme
	MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error)
	Forget(gvk schema.GroupVersionKind)
	RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error)
	Dynamic() (dynamic.Interface, error)
	Metadata() (metadata.Interface, error)
}

// Form is what objects are decoded into.
type Form uint8

const (
	Typed        Form = iota // the Go type that the scheme has for the kind
	Unstructured             // *unstructured.Unstructured
	Metadata                 // *metav1.PartialObjectMetadata
)

// String names the form.
func (f Form) String() string {
	switch f {
	case Unstructured:
		return "unstructured"
	case Metadata:
		return "metadata"
	default:
		return "typed"
	}
}

// Target is what one ListerWatcher lists and watches.
type Target struct {
	Backend Backend
	Kind    schema.GroupVersionKind
	Form    Form
	// Namespace narrows to one namespace, Labels and Fields to what they select, in the API
	// server's syntax. Empty is everything.
	Namespace, Labels, Fields string
	// Name is the object that Fields selects, for errors. Empty if there is no such one.
	Name string
}

// narrow makes a request one for the target.
func (t *Target) narrow(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = t.Labels, t.Fields
	return o
}

// ListKind returns the kind of the lists of a kind.
func ListKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// Reports is what a ListerWatcher reports, and the store that its events end up in. All of it is
// required. The functions are called off all locks and must not block.
type Reports struct {
	// State is called with Syncing after each request that succeeds, with Waiting if the kind is not
	// served, and with Failing and the reason for every other error.
	State func(phase hook.Phase, why error)
	// Mapping is called before each request with how the kind is served.
	Mapping func(m *meta.RESTMapping)
	// Listed is called when everything was listed, perhaps before the store has it.
	Listed func()
	// Delivered is called when the store has all that a list, or a long watch, gave out.
	Delivered func()
	// Store returns the store.
	Store func() toolscache.Store
}
