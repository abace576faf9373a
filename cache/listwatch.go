// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// longestWait is the longest pause between two tries, jitter included. A CRD that returns must be listed within 5 seconds,
	// and the reflector waits for up to 1.6 seconds before it lists anew.
	longestWait = 3 * time.Second
	// askAgain is how old the answer may be that a group-version does not serve a kind: all informers of a cache share it.
	askAgain = 4 * time.Second
	// unanswered is how long a request may go without an answer before that is said.
	unanswered = 30 * time.Second
	// abandoned is how long until it is given up and made again. An API server works on a list for at most a minute, unless it was
	// told otherwise.
	abandoned = 2 * time.Minute
)

// listerWatcher lists and watches one kind for client-go's reflector. A request that fails for a reason that may pass is
// made again here, not there: the reflector's own backoff sleeps up to 30 seconds and, while it streams the initial list,
// does not heed its context. A watch that breaks is a stream's business.
type listerWatcher struct {
	informer *informer
	requests requests
	// pace bounds what the reflector asks for. It asks again at once when a stream ends after its first event, however
	// often that happens.
	pace *rate.Limiter

	lists, watches, quiet atomic.Int64
	listed                atomic.Value           // a string: the version of the last list of everything
	current               atomic.Pointer[stream] // nil while everything is listed

	mu      sync.Mutex     // guards joined, and the Add of running
	joined  bool           // no list may begin
	running sync.WaitGroup // the lists under way
}

func newListerWatcher(i *informer) *listerWatcher {
	return &listerWatcher{informer: i, requests: i.requests(), pace: rate.NewLimiter(rate.Every(time.Second), 5)}
}

func (l *listerWatcher) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{ListWithContextFunc: l.list, WatchFuncWithContext: l.watch}
}

// join waits for what is under way. The reflector makes lists on a goroutine that it does not wait for when it stops, and a
// stream has one of its own.
func (l *listerWatcher) join() {
	l.mu.Lock()
	l.joined = true
	l.mu.Unlock()
	l.running.Wait()
}

// begin says whether a list or a stream may begin. It must then end with running.Done.
func (l *listerWatcher) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.joined {
		l.running.Add(1)
	}
	return !l.joined
}

func (l *listerWatcher) list(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
	if !l.begin() {
		return nil, context.Canceled
	}
	defer l.running.Done()
	l.beginListing(o)
	done, err := l.persist(ctx, o, func(ctx context.Context, m *meta.RESTMapping) (err error) {
		list, err = l.requests.list(ctx, m, l.narrow(o))
		return err
	})
	if err != nil {
		return nil, err
	}
	done()
	if o.Continue == "" {
		l.lists.Add(1)
	}
	if m, err := meta.ListAccessor(list); err == nil {
		l.listed.Store(m.GetResourceVersion())
		if m.GetContinue() == "" {
			l.informer.cache.tellRelisted()
		}
	}
	return list, nil
}

func (l *listerWatcher) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !l.begin() {
		return nil, context.Canceled
	}
	defer l.running.Done()
	o.Watch = true
	if o.SendInitialEvents == nil {
		l.endListing()
	} else {
		l.beginListing(o)
	}
	w, err := l.open(ctx, o)
	if err != nil {
		return nil, err
	}
	s := newStream(l, o)
	l.current.Store(s)
	l.running.Go(func() { s.run(ctx, w) })
	return s, nil
}

// open opens a watch.
func (l *listerWatcher) open(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
	done, err := l.persist(ctx, o, func(ctx context.Context, m *meta.RESTMapping) (err error) {
		w, err = l.requests.watch(ctx, m, l.narrow(o))
		return err
	})
	if err != nil {
		return nil, err
	}
	l.watches.Add(1)
	return &opened{w, done}, nil
}

// opened is a watch with a context of its own.
type opened struct {
	watch.Interface

	done func()
}

// Stop implements watch.Interface.
func (o *opened) Stop() {
	o.Interface.Stop()
	o.done()
}

// narrow makes a request one for what the informer is for.
func (l *listerWatcher) narrow(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = l.informer.key.labels, l.informer.key.fieldSelector()
	return o
}

// beginListing takes down that all objects come anew.
func (l *listerWatcher) beginListing(o metav1.ListOptions) {
	if o.Continue != "" {
		return
	}
	l.current.Store(nil)
	l.informer.bad.beginList()
	if l.lists.Load() > 0 {
		// Not for the first time: the kind may have come back as something else, in another scope for example.
		l.informer.cache.backend.Forget(l.informer.key.gvk)
	}
}

// endListing takes down that they have come.
func (l *listerWatcher) endListing() {
	l.informer.bad.endList()
	l.informer.untransformed.prune(l.informer.shared.GetStore())
}

// persist makes a request until it succeeds, ctx ends, or the reflector is the one to deal with the error. What the request has
// opened lasts until done is called.
func (l *listerWatcher) persist(ctx context.Context, o metav1.ListOptions, do func(context.Context, *meta.RESTMapping) error) (done func(), err error) {
	if o.Continue == "" {
		if err := run.Sleep(ctx, l.pace.Reserve().Delay()); err != nil {
			return nil, err
		}
	}
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 10, Cap: longestWait * 9 / 10}
	for {
		done, err := l.once(ctx, do)
		delay := askedFor(err)
		switch {
		case err == nil:
			l.informer.report(hook.Syncing, nil)
			return done, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case forReflector(err, o):
			return nil, err
		case notServed(err):
			l.informer.report(hook.Waiting, err)
			if o.Watch && o.SendInitialEvents == nil {
				// What is served next may be other objects: the reflector lists anew, and so waits here again.
				return nil, apierrors.NewResourceExpired(l.informer.key.gvk.Kind + " is not served: its objects will be listed anew")
			}
			delay = untilAskedAgain(err)
		default:
			l.informer.report(hook.Failing, err)
			if delay == 0 { // the API server does not say when
				delay = pause.Step()
			}
		}
		if err := run.Sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// once makes a request, and gives it up if there is no answer.
func (l *listerWatcher) once(ctx context.Context, do func(context.Context, *meta.RESTMapping) error) (done func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	given := fmt.Errorf("the API server has not answered for %s, so it is asked again", abandoned)
	answered := afterwards(abandoned, func() { cancel(given) })
	err = l.ask(ctx, do)
	answered()
	if err == nil { // even if it was given up just now: a watch that is dropped here would stay open
		return func() { cancel(nil) }, nil
	}
	cancel(nil)
	if errors.Is(context.Cause(ctx), given) {
		err = given
	}
	return nil, err
}

func (l *listerWatcher) ask(ctx context.Context, do func(context.Context, *meta.RESTMapping) error) error {
	i := l.informer
	answered := afterwards(unanswered, func() {
		i.report(hook.Failing, fmt.Errorf("the API server has not answered for %s", unanswered))
	})
	defer answered()
	mapping, err := i.cache.backend.MappingWithin(ctx, i.key.gvk, askAgain)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot && i.key.place.namespace != "" {
		return fmt.Errorf("%s is a cluster-scoped kind: its cache.Scope must not say a namespace", i.key.gvk.Kind)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && i.key.place.name != "" && i.key.place.namespace == "" {
		return fmt.Errorf("%s is a namespaced kind: the names in its cache.Scope must say their namespaces, as %q does not", i.key.gvk.Kind, i.key.place.name)
	}
	i.mapping.Store(mapping)
	err = do(ctx, mapping)
	if apierrors.IsNotFound(err) {
		// The kind is gone, or served as another resource now.
		i.cache.backend.Forget(i.key.gvk)
		if _, gone := i.cache.backend.MappingWithin(ctx, i.key.gvk, askAgain); meta.IsNoMatchError(gone) {
			return gone // says it better
		}
	}
	return err
}

// forReflector tells the errors that make the reflector ask for something else: a version, or a page, that is too old or too
// new, and a streamed initial list that the API server does not offer: then it asks for a plain list. All else it would only ask
// for again.
func forReflector(err error, o metav1.ListOptions) bool {
	switch {
	case onlyListHelps(err):
		return o.ResourceVersion != "" || o.Continue != ""
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return o.SendInitialEvents != nil
	default:
		return false
	}
}

// askedFor is how long the API server wants to be left alone (Retry-After). A server that starts says
// 5 seconds, whatever it lacks, and is often ready after one.
func askedFor(err error) time.Duration {
	most := 30 * time.Second
	if apierrors.IsServiceUnavailable(err) {
		most = time.Second
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, most)
}

// untilAskedAgain is how long to wait until the API server may be asked for a kind again that it does not serve.
func untilAskedAgain(err error) time.Duration {
	var answer interface{ Asked() time.Time }
	if !errors.As(err, &answer) {
		return longestWait
	}
	return time.Until(answer.Asked().Add(askAgain))
}

func notServed(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	return gvk.GroupVersion().WithKind(gvk.Kind + "List")
}

// afterwards calls f after d, unless the function that it returns is called before. Once that has returned, f does not run.
func afterwards(d time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(done)
		f()
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}
