// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
)

const (
	// longestWait is the longest pause between two tries, including jitter. A CRD that returns must
	// be listed within 5 seconds, and the reflector waits for up to 1.6 seconds before a list.
	longestWait = 3 * time.Second
	// askAgain is the maximum age of the answer that a kind is not served. A cache's informers
	// share it.
	askAgain = 4 * time.Second
	// unanswered is the time after which a request without an answer is reported as failing.
	unanswered = 30 * time.Second
	// unreachable is the same for the first request, the small one for how a kind is served, if the
	// process uses other clusters, too: they go on.
	unreachable = 3 * time.Second
	// abandoned is the time after which a request without an answer is repeated. By default, an API
	// server works on a list for at most a minute.
	abandoned = 2 * time.Minute
)

var errUnwanted = errors.New("the target is no longer wanted")

type asker struct {
	target   *Target
	informer Informer
	// pace limits the requests of the reflector, which asks again at once whenever a stream ends
	// after its first event.
	pace *rate.Limiter
	// marks are delivered by a stream, see Mark.
	marks chan object.Object

	unending atomic.Bool // a streamed initial list did not end, so lists are made in pages

	failing atomic.Pointer[failure] // nil: it follows the API server

	lists, watches, quiet atomic.Int64
	listed                atomic.Value // string, the last complete list's version

	timeline timeline
	begun    atomic.Int64           // lists
	fresh    atomic.Bool            // lists must be current: what was known is no lower bound
	pending  atomic.Pointer[relist] // or nil
	poked    chan struct{}          // pending has changed
	doubts   chan struct{}          // asks for a comparison
}

// persist repeats a request until it succeeds, ctx ends, or the reflector must handle the error.
// What the request opened lasts until done is called.
func (a *asker) persist(ctx context.Context, o metav1.ListOptions, do func(context.Context, *meta.RESTMapping) error) (done func(), err error) {
	pause := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 10, Cap: longestWait * 9 / 10}
	for {
		done, err := a.once(ctx, do)
		delay := askedFor(err)
		switch {
		case err == nil:
			a.recover()
			return done, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errUnwanted):
			delay = pause.Step()
		case forReflector(err, o):
			return nil, err
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			a.fail(hook.Waiting, err)
			if o.Watch && o.SendInitialEvents == nil {
				// The next served objects may be others. The reflector lists again, and waits here
				// again.
				return nil, apierrors.NewResourceExpired(a.target.Kind.Kind + " is not served: its objects are listed again")
			}
			delay = untilAskedAgain(err)
		default:
			a.fail(hook.Failing, err)
			if delay == 0 { // no Retry-After
				delay = pause.Step()
			}
		}
		if err := run.Sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// slow keeps the pace.
func (a *asker) slow(ctx context.Context) error { return run.Sleep(ctx, a.pace.Reserve().Delay()) }

func (a *asker) once(ctx context.Context, do func(context.Context, *meta.RESTMapping) error) (done func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	// The log has it as one cause with the other such errors, because the words are the same.
	given := fmt.Errorf("the API server has not answered for %gs", abandoned.Seconds())
	answered := run.After(abandoned, func() { cancel(given) })
	err = a.ask(ctx, do)
	answered()
	if err == nil { // even if it was just canceled: a dropped watch would stay open
		return func() { cancel(nil) }, nil
	}
	cancel(nil)
	if errors.Is(context.Cause(ctx), given) {
		err = given
	}
	return nil, err
}

func (a *asker) ask(ctx context.Context, do func(context.Context, *meta.RESTMapping) error) error {
	t := a.target
	answered := run.After(unanswered, func() {
		a.fail(hook.Failing, fmt.Errorf("the API server has not answered for %s", unanswered))
	})
	defer answered()
	mapping, err := a.mapping(ctx)
	if err != nil {
		return err
	}
	if !a.informer.Mapped(mapping) {
		return errUnwanted
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot && t.Namespace != "" {
		return fmt.Errorf("%s is a cluster-scoped kind: its cache.Scope must not have a namespace", t.Kind.Kind)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && t.Name != "" && t.Namespace == "" {
		return fmt.Errorf("%s is a namespaced kind: the name %q in its cache.Scope needs a namespace", t.Kind.Kind, t.Name)
	}
	err = do(ctx, mapping)
	if apierrors.IsNotFound(err) {
		// The kind is gone, or is served as another resource now.
		t.Backend.Forget(t.Kind)
		if _, gone := t.Backend.MappingWithin(ctx, t.Kind, askAgain); gone != nil {
			return gone // the clearer error
		}
	}
	return err
}

// mapping is the first request to an API server, and a small one.
func (a *asker) mapping(ctx context.Context) (*meta.RESTMapping, error) {
	if a.target.Further {
		defer run.After(unreachable, func() {
			a.fail(hook.Failing, fmt.Errorf("the API server has not answered for %s", unreachable))
		})()
	}
	return a.target.Backend.MappingWithin(ctx, a.target.Kind, askAgain)
}

// forReflector reports whether the reflector must handle an error with a different request. It
// lists again for a version or page that is too old or too new. It makes a plain list if the API
// server does not stream initial lists.
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

// refusesParameter reports whether an error may be due to a parameter, such as a field selector.
// Proxies have limits and rules for addresses.
func refusesParameter(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Status().Code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotImplemented,
		http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		return true
	case http.StatusForbidden:
		return apierrors.IsUnexpectedServerError(err) // of a proxy; the other is about rights
	default:
		return false
	}
}

// askedFor returns the pause in Retry-After, at most 30 seconds. A starting server always asks for
// 5 seconds but is often ready after one, so its limit is 1 second.
func askedFor(err error) time.Duration {
	most := 30 * time.Second
	if apierrors.IsServiceUnavailable(err) {
		most = time.Second
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return min(time.Duration(seconds)*time.Second, most)
}

func untilAskedAgain(err error) time.Duration {
	var answer interface{ Asked() time.Time }
	if !errors.As(err, &answer) {
		return longestWait
	}
	return time.Until(answer.Asked().Add(askAgain))
}

func onlyListHelps(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
