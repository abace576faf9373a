// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/internal/run"
)

type requests struct {
	list  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

func (d *decoder) requests(m *meta.RESTMapping) (requests, error) {
	if d.Form == Metadata {
		r, err := d.metadata(m)
		if err != nil {
			return requests{}, err
		}
		return requests{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := r.List(ctx, o)
			if err != nil {
				return nil, err
			}
			return list, d.filter(list)
		}, r.Watch}, nil
	}
	c, err := d.Backend.RESTClient(d.Kind)
	if err != nil {
		return requests{}, err
	}
	r := objectRequests{d, c, m.Resource.Resource}
	return requests{r.list, r.watch}, nil
}

func (t *Target) metadata(m *meta.RESTMapping) (metadata.ResourceInterface, error) {
	c, err := t.Backend.Metadata()
	if err != nil {
		return nil, err
	}
	return c.Resource(m.Resource).Namespace(t.Namespace), nil
}

// objectRequests list and watch objects that a Codec reads.
type objectRequests struct {
	*decoder

	client   rest.Interface
	resource string
}

func (r objectRequests) open(ctx context.Context, o *metav1.ListOptions) (io.ReadCloser, error) {
	// Without MaxRetries(0), client-go repeats the request up to 10 times after a Retry-After.
	req := r.client.Get().MaxRetries(0).NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(r.resource).
		SpecificallyVersionedParams(o, metav1.ParameterCodec, metav1.SchemeGroupVersion)
	if r.Form == Unstructured {
		req.SetHeader("Accept", runtime.ContentTypeJSON)
	}
	return req.Stream(ctx)
}

func (r objectRequests) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	body, err := r.open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if o.Continue == "" {
		r.broken.beginList() // forgets what a failed try has found
	}
	return r.readList(body)
}

func (r objectRequests) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	body, err := r.open(ctx, &o)
	if err != nil {
		return nil, err
	}
	// 500 stands for an unknown cause, as in client-go's own watches.
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "ClientWatchDecoding")
	all := &events{decoder: r.decoder, body: body, initial: o.SendInitialEvents != nil}
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), all, reporter), nil
}

const (
	page = 500
	// pageLimit is the time limit for a page. API servers end their requests after a minute.
	pageLimit = 65 * time.Second
)

// ListMetadata lists the metadata of a target's objects, in pages of limit unless it is 0.
func (t Target) ListMetadata(ctx context.Context, m *meta.RESTMapping, limit int64) (*metav1.PartialObjectMetadataList, error) {
	c, err := t.metadata(m)
	if err != nil {
		return nil, err
	}
	var all *metav1.PartialObjectMetadataList
	o := t.narrow(metav1.ListOptions{Limit: limit})
	for {
		limited, cancel := context.WithTimeout(ctx, pageLimit)
		list, err := c.List(limited, o)
		cancel()
		if err != nil {
			return nil, err
		}
		if all != nil {
			list.Items = append(all.Items, list.Items...)
		}
		all = list
		if o.Continue = list.Continue; o.Continue == "" {
			return all, nil
		}
	}
}

// AwaitMetadata lists the metadata of a target's objects, and retries until it succeeds or ctx
// ends. m is how the kind is served, or nil if it is not.
func (t Target) AwaitMetadata(ctx context.Context) (list *metav1.PartialObjectMetadataList, m *meta.RESTMapping, err error) {
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 10, Cap: longestWait}
	for {
		m, err = t.Backend.MappingWithin(ctx, t.Kind, 0)
		if err == nil {
			list, err = t.ListMetadata(ctx, m, page)
		}
		switch {
		case err == nil:
			return list, m, nil
		case meta.IsNoMatchError(err):
			return nil, nil, nil
		case apierrors.IsNotFound(err):
			t.Backend.Forget(t.Kind) // and ask again
		}
		if run.Sleep(ctx, max(askedFor(err), pause.Step())) != nil {
			return nil, nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

// AwaitMapping returns how the kind is served. It retries until it succeeds, and returns nil when
// ctx ends.
func (t Target) AwaitMapping(ctx context.Context) *meta.RESTMapping {
	for ctx.Err() == nil {
		m, err := t.Backend.MappingWithin(ctx, t.Kind, askAgain)
		if err == nil {
			return m
		}
		_ = run.Sleep(ctx, max(untilAskedAgain(err), time.Second)) // fails only with ctx
	}
	return nil
}
