// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// requests makes one list or one watch of what an informer is for, in its form.
type requests interface {
	list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error)
	watch(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (watch.Interface, error)
}

func (i *informer) requests() requests {
	switch i.key.form {
	case untyped:
		return untypedRequests{i}
	case metadataOnly:
		return metadataRequests{i}
	default:
		return typedRequests{i}
	}
}

// typedRequests are for Go types: protobuf where the type can do it, else JSON.
type typedRequests struct{ *informer }

func (r typedRequests) get(m *meta.RESTMapping, o *metav1.ListOptions) (*rest.Request, error) {
	c, err := r.cache.backend.RESTClient(r.key.gvk)
	if err != nil {
		return nil, err
	}
	namespace := r.key.place.namespace
	// Without MaxRetries client-go makes the request up to 10 times more, unseen, if the API server says when (Retry-After).
	return c.Get().MaxRetries(0).NamespaceIfScoped(namespace, namespace != "").Resource(m.Resource.Resource).
		SpecificallyVersionedParams(o, metav1.ParameterCodec, metav1.SchemeGroupVersion), nil
}

func (r typedRequests) list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error) {
	req, err := r.get(m, &o)
	if err != nil {
		return nil, err
	}
	list, err := r.cache.backend.Scheme().New(listKind(r.key.gvk))
	if err != nil {
		return nil, err
	}
	result := req.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	if err := result.Into(list); err != nil {
		return r.decodeEach(result, list, err)
	}
	return list, nil
}

func (r typedRequests) watch(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (watch.Interface, error) {
	req, err := r.get(m, &o)
	if err != nil {
		return nil, err
	}
	if r.speaksProtobuf() {
		return req.Watch(ctx)
	}
	body, err := req.Stream(ctx)
	if err != nil {
		return nil, err
	}
	return r.watchJSON(ctx, body, o.SendInitialEvents != nil), nil
}

// untypedRequests are for unstructured objects.
type untypedRequests struct{ *informer }

func (r untypedRequests) client(m *meta.RESTMapping) (dynamic.ResourceInterface, error) {
	d, err := r.cache.backend.Dynamic()
	if err != nil {
		return nil, err
	}
	if namespace := r.key.place.namespace; namespace != "" {
		return d.Resource(m.Resource).Namespace(namespace), nil
	}
	return d.Resource(m.Resource), nil
}

func (r untypedRequests) list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error) {
	c, err := r.client(m)
	if err != nil {
		return nil, err
	}
	return c.List(ctx, o)
}

func (r untypedRequests) watch(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (watch.Interface, error) {
	c, err := r.client(m)
	if err != nil {
		return nil, err
	}
	return c.Watch(ctx, o)
}

// metadataRequests are for metadata only: the API server leaves the rest out.
type metadataRequests struct{ *informer }

func (r metadataRequests) client(m *meta.RESTMapping) (metadata.ResourceInterface, error) {
	c, err := r.cache.backend.Metadata()
	if err != nil {
		return nil, err
	}
	if namespace := r.key.place.namespace; namespace != "" {
		return c.Resource(m.Resource).Namespace(namespace), nil
	}
	return c.Resource(m.Resource), nil
}

func (r metadataRequests) list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error) {
	c, err := r.client(m)
	if err != nil {
		return nil, err
	}
	return c.List(ctx, o)
}

func (r metadataRequests) watch(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (watch.Interface, error) {
	c, err := r.client(m)
	if err != nil {
		return nil, err
	}
	return c.Watch(ctx, o)
}
