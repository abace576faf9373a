// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/storage"
)

// Backend is the part of cache.Backend that lists and watches.
type Backend interface {
	Scheme() *runtime.Scheme
	MappingWithin(ctx context.Context, gvk schema.GroupVersionKind, age time.Duration) (*meta.RESTMapping, error)
	Forget(gvk schema.GroupVersionKind)
	RESTClient(gvk schema.GroupVersionKind) (rest.Interface, error)
	Metadata() (metadata.Interface, error)
}

// Form is the Go form of decoded objects.
type Form uint8

const (
	Typed        Form = iota // the scheme's Go type of the kind
	Unstructured             // *unstructured.Unstructured
	Metadata                 // *metav1.PartialObjectMetadata
)

// String returns the form's name.
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

// Target is what a ListerWatcher lists and watches.
type Target struct {
	Backend Backend
	Kind    schema.GroupVersionKind
	Form    Form
	// Codec reads the objects, unless they are metadata. Required.
	Codec storage.Codec
	// Part limits the target to some slots. Default: everything.
	Part *Part
	// Namespace, Labels and Fields narrow the target, in the API server's syntax.
	Namespace, Labels, Fields string
	// Name is the object that Fields selects, for errors. Default: none.
	Name string
	// Further reports that the process uses other API servers, too.
	Further bool
	// QuietLimit is how long a watch may send nothing before it is checked. Default: 3 minutes.
	QuietLimit time.Duration
}

func (t *Target) quietLimit() time.Duration { return cmp.Or(t.QuietLimit, quietLimit) }

func (t *Target) narrow(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = t.Labels, t.Fields
	return o
}

// ListKind returns the kind of a kind's lists.
func ListKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// Informer is the informer that a ListerWatcher serves. Package cache implements it. Its methods
// are called without locks and must not block.
type Informer interface {
	// Report is called with Syncing after each successful request, or after a failure once the
	// store has what was missed. It is called with Waiting if the kind is not served, and with
	// Failing and the error otherwise.
	Report(phase hook.Phase, why error)
	// Mapped is called before each request, with how the kind is served. false means that the
	// target is about to be dropped: the request is not made, and no error is reported.
	Mapped(m *meta.RESTMapping) (wanted bool)
	// Listed is called after a complete list, perhaps before the store has it.
	Listed()
	// Delivered is called when the store has all events of a list or a long watch.
	Delivered()
	// Restored is called when two readings, a pause apart, have found that the API server's data
	// went back or is other data. The ListerWatcher then makes a list: at once if Restored returns
	// true, else when Relist has set.
	Restored(why *Restored) (now bool)
	// Compared is called when a comparison after Doubt has found no contradiction.
	Compared()
	// Prepare returns what is stored instead of an object from the API server. It is called once
	// for each, by several goroutines.
	Prepare(o object.Object) object.Object
	// Store returns the store that receives the events.
	Store() toolscache.Store
}
