// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// ListOptions selects the objects of a list, a watch or a DeleteAll. The zero value selects all.
type ListOptions struct {
	// Namespace restricts a namespaced kind. Default: all.
	Namespace string
	// Labels selects by labels. Default: all.
	Labels labels.Selector
	// Fields selects by the fields that the API server supports: metadata.name, metadata.namespace,
	// and for some kinds a few more. Default: all.
	Fields fields.Selector
	// PageSize is the number of objects in a request. Default: 500, for DeleteAll 200.
	PageSize int
}

func (o ListOptions) request() metav1.ListOptions {
	r := metav1.ListOptions{Limit: int64(cmp.Or(o.PageSize, 500))}
	if o.Labels != nil {
		r.LabelSelector = o.Labels.String()
	}
	if o.Fields != nil {
		r.FieldSelector = o.Fields.String()
	}
	return r
}

// ListLive reads objects from the API server, one page at a time. [Collect] returns a slice.
//
// An error ends the list. All objects are from the moment of the first page. If the API server
// drops that version, usually after 5 minutes, the rest is newer. Each object comes at most once.
// Every object that exists during the whole list comes. An object that you keep does not keep its
// page in memory.
func (h *Handle[T]) ListLive(ctx context.Context, o ListOptions) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := h.target.eachPage(ctx, listing, o, nil, func(page runtime.Object) error {
			return h.eachItem(page, func(obj T) bool { return yield(obj, nil) })
		}); err != nil && !errors.Is(err, errEnough) {
			yield(*new(T), err)
		}
	}
}

var errEnough = errors.New("enough")

func (h *Handle[T]) eachItem(page runtime.Object, do func(T) bool) error {
	return meta.EachListItemWithAlloc(page, func(item runtime.Object) error {
		obj, ok := item.(T)
		if !ok {
			return fmt.Errorf("list %s: an item is a %T, not a %T", h.target.gvk.Kind, item, obj)
		}
		if h.target.form == inMetadata {
			item.GetObjectKind().SetGroupVersionKind(h.target.gvk)
		}
		if !do(obj) {
			return errEnough
		}
		return nil
	})
}

func (t target) eachPage(ctx context.Context, v verb, o ListOptions, body any, do func(runtime.Object) error) error {
	if o.PageSize < 0 {
		return fmt.Errorf("client.ListOptions.PageSize is %d, it must not be negative", o.PageSize)
	}
	key := types.NamespacedName{Namespace: o.Namespace}
	for request, expired := o.request(), false; ; {
		r, err := t.request(ctx, v, key, &request, body)
		if err != nil {
			return err
		}
		page, err := t.newList()
		if err != nil {
			return err
		}
		err = r.Do(ctx).Into(page)
		if again := continuation(err); again != "" && !expired {
			request.Continue, expired = again, true
			continue
		}
		if err != nil {
			return t.explain(ctx, v, key, err)
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

func (t target) newList() (runtime.Object, error) {
	switch t.form {
	case inUnstructured:
		return &unstructured.UnstructuredList{}, nil
	case inMetadata:
		return &metav1.PartialObjectMetadataList{}, nil
	}
	kind := t.gvk
	kind.Kind += "List"
	list, err := t.client.scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("list %s: the scheme does not know %s; add the type of the list to it", t.gvk.Kind, said(kind))
	}
	return list, nil
}

// continuation returns the token to continue with a newer version, from the response 410
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks).
func continuation(err error) string {
	if !apierrors.IsResourceExpired(err) {
		return ""
	}
	return statusOf(err).Continue
}

// Collect reads a list to its end. After an error, it returns the error and the objects before it.
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
