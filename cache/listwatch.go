// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// longestWait is the longest pause between two tries, jitter included. A CRD that returns must be listed within 5 seconds, and
// the reflector waits for up to 1.6 seconds before it lists anew.
const longestWait = 3 * time.Second

// listerWatcher lists and watches one kind for client-go's reflector. A request that fails for a reason that may pass is
// made again here, not there: the reflector's own backoff sleeps up to 30 seconds and, while it streams the initial list,
// does not heed its context. Errors inside a watch are the reflector's: it lists anew, after a pause of up to 30 seconds.
type listerWatcher struct {
	backend Backend
	gvk     schema.GroupVersionKind
	report  func(hook.Phase, error)
	mapped  func(*meta.RESTMapping)
	// pace bounds what the reflector asks for. It asks again at once when a stream ends after its first event, however
	// often that happens.
	pace *rate.Limiter

	mu     sync.Mutex     // guards joined, and the Add of lists
	joined bool           // no list may begin
	lists  sync.WaitGroup // those under way
}

func newListerWatcher(b Backend, gvk schema.GroupVersionKind, report func(hook.Phase, error), mapped func(*meta.RESTMapping)) *listerWatcher {
	return &listerWatcher{backend: b, gvk: gvk, report: report, mapped: mapped, pace: rate.NewLimiter(rate.Every(time.Second), 5)}
}

func (l *listerWatcher) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

// join waits for lists under way. The reflector makes them on a goroutine that it does not wait for when it stops.
func (l *listerWatcher) join() {
	l.mu.Lock()
	l.joined = true
	l.mu.Unlock()
	l.lists.Wait()
}

// begin says whether a list may begin. It must then end with lists.Done.
func (l *listerWatcher) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.joined {
		l.lists.Add(1)
	}
	return !l.joined
}

func (l *listerWatcher) list(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
	if !l.begin() {
		return nil, context.Canceled
	}
	defer l.lists.Done()
	_, err = l.persist(ctx, o, func(ctx context.Context, req *rest.Request) (err error) {
		list, err = l.backend.Scheme().New(listKind(l.gvk))
		if err != nil {
			return err
		}
		return req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Do(ctx).Into(list)
	})
	return list, err
}

func (l *listerWatcher) watch(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
	o.Watch = true
	missed, err := l.persist(ctx, o, func(ctx context.Context, req *rest.Request) (err error) {
		w, err = req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Watch(ctx)
		if err == nil && o.SendInitialEvents != nil {
			w, err = readInitial(ctx, w)
		}
		return err
	})
	if err == nil && missed && o.SendInitialEvents == nil {
		w.Stop()
		return nil, apierrors.NewResourceExpired(l.gvk.Kind + " was not served for a while: its objects are listed anew")
	}
	return w, err
}

// persist makes a request until it succeeds, ctx ends, or the reflector is the one to deal with the error. missed says that
// the API was gone in between, so that a watch cannot be trusted to go on where it was.
func (l *listerWatcher) persist(ctx context.Context, o metav1.ListOptions, do func(context.Context, *rest.Request) error) (missed bool, err error) {
	if o.Continue == "" {
		if err := sleep(ctx, l.pace.Reserve().Delay()); err != nil {
			return false, err
		}
	}
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 10, Cap: longestWait * 9 / 10}
	for {
		err := l.once(ctx, do)
		switch {
		case err == nil:
			l.report(hook.Syncing, nil)
			return missed, nil
		case ctx.Err() != nil:
			return missed, ctx.Err()
		case forReflector(err, o):
			return missed, err
		case notServed(err):
			missed = true
			l.report(hook.Waiting, err)
		default:
			l.report(hook.Failing, err)
		}
		if err := sleep(ctx, max(pause.Step(), askedFor(err))); err != nil {
			return missed, err
		}
	}
}

func (l *listerWatcher) once(ctx context.Context, do func(context.Context, *rest.Request) error) error {
	mapping, err := l.backend.Mapping(ctx, l.gvk)
	if err != nil {
		return err
	}
	l.mapped(mapping)
	c, err := l.backend.RESTClient(l.gvk)
	if err != nil {
		return err
	}
	// Without MaxRetries client-go makes the request up to 10 times more, unseen, if the API server says when (Retry-After).
	err = do(ctx, c.Get().MaxRetries(0).Resource(mapping.Resource.Resource))
	if apierrors.IsNotFound(err) {
		// The kind is gone, or served as another resource now.
		l.backend.Forget(l.gvk)
		if _, gone := l.backend.Mapping(ctx, l.gvk); meta.IsNoMatchError(gone) {
			return gone // says it better
		}
	}
	return err
}

// forReflector tells the errors that make the reflector ask for something else: a version, or a page, that is too old or too
// new, and a streamed initial list that the API server does not offer, or that fails half way: then it asks for a plain list.
// All else it would only ask for again.
func forReflector(err error, o metav1.ListOptions) bool {
	var inStream streamError
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return o.ResourceVersion != "" || o.Continue != ""
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return o.SendInitialEvents != nil
	case errors.As(err, &inStream):
		return !apierrors.IsTooManyRequests(err)
	default:
		return false
	}
}

// askedFor is how long the API server wants to be left alone (Retry-After).
func askedFor(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, 30*time.Second)
}

func notServed(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// sleep returns nil after d, or ctx's error as soon as it is done.
func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
