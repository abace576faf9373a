// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// requests makes one list or one watch of a target, in its form.
type requests interface {
	list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error)
	watch(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (watch.Interface, error)
}

func newRequests(d *decoder) requests {
	switch d.Form {
	case Unstructured:
		return resourceRequests[*unstructured.UnstructuredList](d.unstructured)
	case Metadata:
		return resourceRequests[*metav1.PartialObjectMetadataList](d.metadata)
	default:
		return typedRequests{d}
	}
}

// typedRequests are for Go types: protobuf where the type can do it, else JSON.
type typedRequests struct{ *decoder }

func (r typedRequests) get(m *meta.RESTMapping, o *metav1.ListOptions) (*rest.Request, error) {
	c, err := r.Backend.RESTClient(r.Kind)
	if err != nil {
		return nil, err
	}
	// Without MaxRetries(0) client-go itself repeats the request up to 10 times after a Retry-After.
	return c.Get().MaxRetries(0).NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(m.Resource.Resource).
		SpecificallyVersionedParams(o, metav1.ParameterCodec, metav1.SchemeGroupVersion), nil
}

func (r typedRequests) list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error) {
	req, err := r.get(m, &o)
	if err != nil {
		return nil, err
	}
	list, err := r.Backend.Scheme().New(ListKind(r.Kind))
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

// resource is a client of one resource in one form: client-go's dynamic or metadata client.
type resource[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// resourceRequests are for objects that client-go decodes without their Go type.
type resourceRequests[L runtime.Object] func(m *meta.RESTMapping) (resource[L], error)

func (r resourceRequests[L]) list(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (runtime.Object, error) {
	c, err := r(m)
	if err != nil {
		return nil, err
	}
	return c.List(ctx, o)
}

func (r resourceRequests[L]) watch(ctx context.Context, m *meta.RESTMapping, o metav1.ListOptions) (watch.Interface, error) {
	c, err := r(m)
	if err != nil {
		return nil, err
	}
	return c.Watch(ctx, o)
}

func (t *Target) unstructured(m *meta.RESTMapping) (resource[*unstructured.UnstructuredList], error) {
	d, err := t.Backend.Dynamic()
	if err != nil {
		return nil, err
	}
	if t.Namespace != "" {
		return d.Resource(m.Resource).Namespace(t.Namespace), nil
	}
	return d.Resource(m.Resource), nil
}

// metadata is for metadata only: the API server leaves the rest out.
func (t *Target) metadata(m *meta.RESTMapping) (resource[*metav1.PartialObjectMetadataList], error) {
	c, err := t.Backend.Metadata()
	if err != nil {
		return nil, err
	}
	if t.Namespace != "" {
		return c.Resource(m.Resource).Namespace(t.Namespace), nil
	}
	return c.Resource(m.Resource), nil
}
