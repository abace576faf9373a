// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// page is how many objects are asked for at a time.
	page = 500
	// pageLimit is when a page does not come any more: API servers end their requests after a minute.
	pageLimit = 65 * time.Second
)

// ListMetadata lists the metadata of the objects of a target, in one request or, if limit is not 0,
// page by page.
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

// AwaitMetadata lists the metadata of the objects of a target, again and again until there is an answer
// or ctx ends. It returns how the kind is served, or nil if it is not.
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
			t.Backend.Forget(t.Kind) // and ask
		}
		if run.Sleep(ctx, max(askedFor(err), pause.Step())) != nil {
			return nil, nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

// AwaitMapping asks how the kind is served until there is an answer. It returns nil when ctx ends.
func (t Target) AwaitMapping(ctx context.Context) *meta.RESTMapping {
	for ctx.Err() == nil {
		m, err := t.Backend.MappingWithin(ctx, t.Kind, askAgain)
		if err == nil {
			return m
		}
		_ = run.Sleep(ctx, max(untilAskedAgain(err), time.Second)) // its error is ctx's
	}
	return nil
}
