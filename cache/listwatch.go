// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
)

// longestWait is the longest pause between two tries, jitter included: a CRD that appears must be seen within 5 seconds.
const longestWait = 4 * time.Second

// listerWatcher lists and watches one kind for client-go's reflector. A request that fails for a reason that may pass is
// made again here, not there: the reflector's own backoff sleeps up to 30 seconds and does not heed its context.
type listerWatcher struct {
	backend Backend
	gvk     schema.GroupVersionKind
	report  func(hook.Phase, error)
}

func (l *listerWatcher) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

func (l *listerWatcher) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	var list runtime.Object
	_, err := l.persist(ctx, false, func(ctx context.Context, req *rest.Request) (err error) {
		list, err = l.backend.Scheme().New(l.gvk.GroupVersion().WithKind(l.gvk.Kind + "List"))
		if err != nil {
			return fmt.Errorf("the scheme knows %s but not its list type: %w", l.gvk, err)
		}
		return req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Do(ctx).Into(list)
	})
	return list, err
}

func (l *listerWatcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	streaming := o.SendInitialEvents != nil
	var w watch.Interface
	missed, err := l.persist(ctx, streaming, func(ctx context.Context, req *rest.Request) (err error) {
		w, err = req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Watch(ctx)
		return err
	})
	if err == nil && missed && !streaming {
		w.Stop()
		return nil, apierrors.NewResourceExpired(l.gvk.Kind + " was not served for a while: its objects are listed anew")
	}
	return w, err
}

// persist makes a request until it succeeds, ctx ends, or the reflector is the one to deal with the error. missed says that
// the API was gone in between, so that a watch cannot be trusted to go on where it was.
func (l *listerWatcher) persist(ctx context.Context, streaming bool, do func(context.Context, *rest.Request) error) (missed bool, err error) {
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 10, Cap: longestWait * 9 / 10}
	for {
		err := l.once(ctx, do)
		switch {
		case err == nil:
			l.report("", nil)
			return missed, nil
		case ctx.Err() != nil:
			return missed, ctx.Err()
		case forReflector(err, streaming):
			return missed, err
		case notServed(err):
			missed = true
			l.report(hook.Waiting, err)
		default:
			l.report(hook.Failing, err)
		}
		select {
		case <-ctx.Done():
			return missed, ctx.Err()
		case <-time.After(pause.Step()):
		}
	}
}

func (l *listerWatcher) once(ctx context.Context, do func(context.Context, *rest.Request) error) error {
	mapping, err := l.backend.Mapping(ctx, l.gvk)
	if err != nil {
		return err
	}
	c, err := l.backend.RESTClient(l.gvk)
	if err != nil {
		return err
	}
	return do(ctx, c.Get().Resource(mapping.Resource.Resource))
}

// forReflector tells the errors that change what the reflector asks for next: a version that is too old or too new, and a
// streamed initial list that the API server does not offer.
func forReflector(err error, streaming bool) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) ||
		streaming && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
}

func notServed(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
