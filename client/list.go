// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// ListOptions says what to list. The zero value is all objects.
type ListOptions struct {
	// Namespace narrows a namespaced kind to one. Default: all of them.
	Namespace string
	// Labels selects by labels, at the API server. Default: all.
	Labels labels.Selector
	// Fields selects by those fields that the API server can select by: metadata.name and metadata.namespace, and a few of
	// some kinds. Default: all.
	Fields fields.Selector
	// PageSize is how many objects a request asks for. Default: 500.
	PageSize int
}

// Validate names the field that is wrong.
func (o ListOptions) Validate() error {
	if o.PageSize < 0 {
		return fmt.Errorf("client.ListOptions.PageSize is %d, it must not be negative", o.PageSize)
	}
	return nil
}

func (o ListOptions) request() metav1.ListOptions {
	r := metav1.ListOptions{Limit: int64(o.PageSize)}
	if o.PageSize == 0 {
		r.Limit = 500
	}
	if o.Labels != nil {
		r.LabelSelector = o.Labels.String()
	}
	if o.Fields != nil {
		r.FieldSelector = o.Fields.String()
	}
	return r
}

// ListLive reads objects from the API server, a page at a time while the caller goes on:
//
//	for pod, err := range client.For[*corev1.Pod](c).ListLive(ctx, client.ListOptions{Namespace: "shop"}) {
//		if err != nil {
//			return err
//		}
//		…
//	}
//
// An error ends it. All objects are of one moment, that of the first page, unless the API server has forgotten it when a later
// page is asked for, usually after 5 minutes: that page and what follows are then of the moment that they are asked for. Each
// object comes at most once all the same, and what exists from beginning to end comes. An object that the caller keeps does not
// keep its page in memory. [Collect] makes a slice.
func (h *Handle[T]) ListLive(ctx context.Context, o ListOptions) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := h.eachPage(ctx, o, func(page runtime.Object) error {
			return meta.EachListItemWithAlloc(page, func(item runtime.Object) error {
				obj, ok := item.(T)
				if !ok {
					return fmt.Errorf("list %s: an item is a %T, not a %T", h.gvk.Kind, item, obj)
				}
				if !yield(obj, nil) {
					return errEnough
				}
				return nil
			})
		}); err != nil && !errors.Is(err, errEnough) {
			yield(*new(T), err)
		}
	}
}

// errEnough says that the caller has left the loop.
var errEnough = errors.New("enough")

func (h *Handle[T]) eachPage(ctx context.Context, o ListOptions, do func(runtime.Object) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	m, err := h.anywhere(ctx, o.Namespace)
	if err != nil {
		return err
	}
	if !anyKind[T]() && !h.client.scheme.Recognizes(listKind(h.gvk)) {
		return fmt.Errorf("list %s: the scheme does not know %s; add the type of the list to it", h.gvk.Kind, said(listKind(h.gvk)))
	}
	w, err := h.dial(h.target, m.Resource, o.Namespace)
	if err != nil {
		return err
	}
	request, expired := o.request(), false
	for {
		page, err := w.List(ctx, request)
		if again := continuation(err); again != "" && !expired {
			request.Continue, expired = again, true
			continue
		}
		if err != nil {
			return h.explain(ctx, err, "")
		}
		if err := do(page); err != nil {
			return err
		}
		list, err := meta.ListAccessor(page)
		if err != nil || list.GetContinue() == "" {
			return err
		}
		request.Continue, expired = list.GetContinue(), false
	}
}

// continuation returns how to go on when the moment of the first page is forgotten: the answer 410 has a token for that
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks).
func continuation(err error) string {
	var s apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &s) {
		return ""
	}
	return s.Status().Continue
}

// Collect reads a list to its end: the error is the first one, and the objects are those before it.
func Collect[T Object](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for obj, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, obj)
	}
	return all, nil
}
