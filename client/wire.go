// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/metadata"
)

// wire is client-go's client for one resource in one namespace: gentype's, or that of dynamic or metadata.
type wire[T Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	UpdateStatus(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// dial makes a wire.
type dial[T Object] = func(t target, resource schema.GroupVersionResource, namespace string) (wire[T], error)

func dialFor[T Object]() dial[T] {
	var d any
	switch any(*new(T)).(type) {
	case *unstructured.Unstructured:
		d = dialDynamic
	case *metav1.PartialObjectMetadata:
		d = dialMetadata
	default:
		return dialTyped[T]
	}
	return d.(dial[T]) //nolint:forcetypeassert // the case says it
}

func dialTyped[T Object](t target, resource schema.GroupVersionResource, namespace string) (wire[T], error) {
	r, err := t.client.RESTClient(t.gvk)
	if err != nil {
		return nil, err
	}
	newList := func() runtime.Object {
		list, err := t.client.scheme.New(listKind(t.gvk))
		if err != nil {
			return &metav1.List{} // ListLive has looked
		}
		return list
	}
	return gentype.NewClientWithList(resource.Resource, r, t.client.params, namespace, newObject[T], newList), nil
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	gvk.Kind += "List"
	return gvk
}

// dynamicWire speaks of unstructured objects.
type dynamicWire struct {
	dynamic.ResourceInterface
	gvk schema.GroupVersionKind
}

func dialDynamic(t target, resource schema.GroupVersionResource, namespace string) (wire[*unstructured.Unstructured], error) {
	d, err := t.client.dynamicFor(t.gvk)
	if err != nil {
		return nil, err
	}
	return dynamicWire{d.Resource(resource).Namespace(namespace), t.gvk}, nil
}

func (w dynamicWire) Get(ctx context.Context, name string, o metav1.GetOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.Get(ctx, name, o)
}

func (w dynamicWire) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := w.ResourceInterface.List(ctx, o)
	if err != nil {
		return nil, err // not a nil list in an interface
	}
	return list, nil
}

func (w dynamicWire) Create(ctx context.Context, obj *unstructured.Unstructured, o metav1.CreateOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.Create(ctx, withKind(obj, w.gvk), o)
}

func (w dynamicWire) Update(ctx context.Context, obj *unstructured.Unstructured, o metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.Update(ctx, withKind(obj, w.gvk), o)
}

func (w dynamicWire) UpdateStatus(ctx context.Context, obj *unstructured.Unstructured, o metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return w.ResourceInterface.UpdateStatus(ctx, withKind(obj, w.gvk), o)
}

func (w dynamicWire) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return w.ResourceInterface.Delete(ctx, name, o)
}

// withKind returns the object with its kind, and leaves the given one as it is.
func withKind(obj *unstructured.Unstructured, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	obj = &unstructured.Unstructured{Object: maps.Clone(obj.Object)}
	obj.SetGroupVersionKind(gvk)
	return obj
}

// metadataWire speaks of the metadata of objects. The API server offers no way to write that alone, patches excepted.
type metadataWire struct {
	metadata.ResourceInterface
	gvk schema.GroupVersionKind
}

func dialMetadata(t target, resource schema.GroupVersionResource, namespace string) (wire[*metav1.PartialObjectMetadata], error) {
	m, err := t.client.metadataFor(t.gvk)
	if err != nil {
		return nil, err
	}
	return metadataWire{m.Resource(resource).Namespace(namespace), t.gvk}, nil
}

func (w metadataWire) Get(ctx context.Context, name string, o metav1.GetOptions) (*metav1.PartialObjectMetadata, error) {
	return w.named(w.ResourceInterface.Get(ctx, name, o))
}

func (w metadataWire) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := w.ResourceInterface.List(ctx, o)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(w.gvk)
	}
	return list, nil
}

func (w metadataWire) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*metav1.PartialObjectMetadata, error) {
	return w.named(w.ResourceInterface.Patch(ctx, name, pt, data, o, subresources...))
}

func (w metadataWire) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return w.ResourceInterface.Delete(ctx, name, o)
}

// named says of which kind the metadata is, instead of PartialObjectMetadata.
func (w metadataWire) named(m *metav1.PartialObjectMetadata, err error) (*metav1.PartialObjectMetadata, error) {
	if err == nil {
		m.SetGroupVersionKind(w.gvk)
	}
	return m, err
}

func (w metadataWire) Create(context.Context, *metav1.PartialObjectMetadata, metav1.CreateOptions) (*metav1.PartialObjectMetadata, error) {
	return nil, w.incomplete("create")
}

func (w metadataWire) Update(context.Context, *metav1.PartialObjectMetadata, metav1.UpdateOptions) (*metav1.PartialObjectMetadata, error) {
	return nil, w.incomplete("update")
}

func (w metadataWire) UpdateStatus(context.Context, *metav1.PartialObjectMetadata, metav1.UpdateOptions) (*metav1.PartialObjectMetadata, error) {
	return nil, w.incomplete("update the status of")
}

func (w metadataWire) incomplete(what string) error {
	return fmt.Errorf("%s %s: a handle of metadata has no whole object to send; use Patch or Apply, or a handle of the whole kind", what, w.gvk.Kind)
}
