// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

const (
	requestTimeout = 10 * time.Second
	maxTries       = 8
	firstBackoff   = time.Second // doubles up to maxBackoff
	maxBackoff     = time.Minute
)

func toStored(e *eventsv1.Event) stored {
	s := stored{name: e.Name, version: e.ResourceVersion, count: 1}
	if e.Series != nil {
		s.count = int64(e.Series.Count)
	}
	return s
}

func lastSeen(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

// send may be called only after begin.
func (r *Recorder) send(ctx context.Context, s *series) {
	b, now := s.current, stored{}
	under, err := underTerm(s.term)
	if err == nil {
		request, cancel := context.WithTimeout(ledger.Without(term.Without(ctx)), requestTimeout)
		now, err = r.store(term.With(request, under), s)
		cancel()
	}
	why := r.verdict(err, b)
	var retry time.Time
	switch {
	case err == nil:
		s.stored = now
	case why == "":
		retry = time.Now().Add(r.backoff(b.tries, err))
	}
	r.mu.Lock()
	if r.over && !retry.IsZero() {
		why, retry = stopped, time.Time{}
	}
	r.schedule.settle(s, retry)
	r.mu.Unlock()
	r.report(ctx, s, b, err, why)
}

// underTerm returns the term under which the events of a term are sent: none when its work has
// returned, because the Lease may be another replica's by now.
func underTerm(of *term.Term) (*term.Term, error) {
	if of == nil {
		return nil, nil //nolint:nilnil // sent without a term
	}
	switch why := of.Trusted(); {
	case why == nil:
		return of, nil
	case errors.Is(why, fence.ErrReturned):
		return nil, nil //nolint:nilnil // sent without a term
	}
	return nil, errLostTerm
}

// backoff honors a Retry-After unless the recorder is closed: there may be no later.
func (r *Recorder) backoff(earlier int, err error) time.Duration {
	pause := min(firstBackoff<<earlier, maxBackoff)
	r.mu.Lock()
	defer r.mu.Unlock()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && !r.closed {
		pause = max(pause, min(time.Duration(seconds)*time.Second, maxBackoff))
	}
	return pause
}

func (r *Recorder) report(ctx context.Context, s *series, b *batch, err error, why string) {
	switch {
	case err == nil:
		r.hook.Send(&hook.EventSent{Kind: s.kind, Type: string(s.eventType), Reason: s.reason, Events: b.calls})
		return
	case errors.Is(err, errLostTerm): // no request was made
	default:
		r.hook.Send(&hook.EventFailed{Kind: s.kind, Type: string(s.eventType), Reason: s.reason, Err: err})
	}
	if why == "" {
		return
	}
	r.logDropped(ctx, s, err, why)
	r.dropped(s.key, why, b.calls)
}

const choose = "choose another namespace for events about cluster-scoped objects with events.Options.Namespace"

// logDropped logs a missing right once for each namespace, and other mistakes once for each kind
// and reason. That an object's namespace is gone is no mistake.
func (r *Recorder) logDropped(ctx context.Context, s *series, err error, why string) {
	log, home := logging.Of(ctx), r.home(&s.key)
	switch {
	case why == forbidden && r.log.Once(why, home):
		advice := "give the operator's role in this namespace the rule apiGroups [events.k8s.io], resources [events], verbs [create, patch]"
		if home == r.namespace {
			advice += "; or " + choose
		}
		log.WarnContext(ctx, "events cannot be written and are dropped; "+advice, "namespace", home, "err", err)
	case why == noPlace && s.namespace == "" && r.log.Once(why, home):
		log.WarnContext(ctx, "events about cluster-scoped objects are dropped, because their namespace is gone or terminating; "+
			"create it, or "+choose, "namespace", home, "err", err)
	case (why == rejected || why == failed) && r.log.Once(why, s.kind, s.reason):
		log.WarnContext(ctx, "an event is dropped", "why", why, "err", err, "kind", s.kind, "reason", s.reason,
			"object", types.NamespacedName{Namespace: s.namespace, Name: s.name}.String())
	}
}

const (
	lostTerm  = "the term of leadership is lost"
	forbidden = "forbidden"
	noPlace   = "the namespace is gone or terminating"
	rejected  = "rejected by the API server"
	failed    = "too many failures"
	stopped   = "not sent before the stop"
)

var errLostTerm = errors.New(lostTerm)

func (r *Recorder) verdict(err error, b *batch) (why string) {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errLostTerm), errors.Is(err, term.ErrFenced) && !errors.Is(err, fence.ErrReturned):
		return lostTerm
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err) && about(err) == "namespaces":
		return noPlace
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return rejected
	case b.tries+1 >= maxTries:
		return failed
	}
	return ""
}

func about(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return status.Status().Details.Kind
	}
	return ""
}

func (r *Recorder) store(ctx context.Context, s *series) (stored, error) {
	b, e := s.current, r.event(s)
	if s.stored.name == e.Name {
		now, err := r.patch(ctx, s, s.stored)
		switch {
		case apierrors.IsConflict(err):
			return r.join(ctx, s, e.Name)
		case !apierrors.IsNotFound(err): // else it has expired
			return now, err
		}
	}
	created := &eventsv1.Event{}
	err := r.do(s, r.rest.Post().Namespace(e.Namespace).Body(e)).Do(ctx).Into(created)
	if apierrors.IsAlreadyExists(err) {
		return r.join(ctx, s, e.Name)
	}
	b.unsure = b.unsure || err != nil
	return toStored(created), err
}

// join adds the current batch to an Event of another process, or of a request whose answer was
// lost.
func (r *Recorder) join(ctx context.Context, s *series, name string) (now stored, err error) {
	const attempts = 3 // in case another process joins, too
	for range attempts {
		found := &eventsv1.Event{}
		// An empty patch reads without the right to get events.
		read := r.rest.Patch(types.MergePatchType).Namespace(r.home(&s.key)).Name(name).Body([]byte("{}"))
		if err := r.do(s, read).Do(ctx).Into(found); err != nil {
			return stored{}, err
		}
		if b := s.current; b.unsure && lastSeen(found).Equal(b.last) {
			return toStored(found), nil
		}
		if now, err = r.patch(ctx, s, toStored(found)); !apierrors.IsConflict(err) {
			return now, err
		}
	}
	return stored{}, err
}

func (r *Recorder) patch(ctx context.Context, s *series, old stored) (stored, error) {
	b := s.current
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": old.version},
		"series":   counted(old.count+int64(b.calls), b.last),
	})
	if err != nil {
		return stored{}, err
	}
	patched := &eventsv1.Event{}
	request := r.rest.Patch(types.MergePatchType).Namespace(r.home(&s.key)).Name(old.name).Body(data)
	if err := r.do(s, request).Do(ctx).Into(patched); err != nil {
		b.unsure = b.unsure || !apierrors.IsConflict(err)
		return stored{}, err
	}
	return toStored(patched), nil
}

// do completes a request and counts it. The schedule retries, not client-go.
func (r *Recorder) do(s *series, request *rest.Request) *rest.Request {
	r.mu.Lock()
	now := time.Now()
	s.object.ReserveN(now, 1)
	r.schedule.total.ReserveN(now, 1)
	r.mu.Unlock()
	return request.Resource("events").MaxRetries(0)
}

func counted(calls int64, last time.Time) *eventsv1.EventSeries {
	return &eventsv1.EventSeries{
		Count:            int32(min(calls, math.MaxInt32)), //nolint:gosec // limited
		LastObservedTime: metav1.NewMicroTime(last),
	}
}

// home returns the namespace of an event.
func (r *Recorder) home(k *key) string { return cmp.Or(k.namespace, r.namespace) }

func (r *Recorder) event(s *series) *eventsv1.Event {
	b, home, namespace := s.current, r.home(&s.key), s.namespace
	if home != metav1.NamespaceDefault && home != metav1.NamespaceSystem {
		namespace = home // the API server accepts an empty one only in those two
	}
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: eventName(r.name, &s.key, b.note)},
		EventTime:  metav1.NewMicroTime(b.first), Type: string(s.eventType), Reason: s.reason, Action: s.action, Note: b.note,
		ReportingController: r.name, ReportingInstance: cmp.Or(r.instance, "unknown"),
		Regarding: corev1.ObjectReference{
			APIVersion: schema.GroupVersion{Group: s.group, Version: b.version}.String(), Kind: s.kind, Namespace: namespace, Name: s.name, UID: s.uid,
		},
	}
	if b.calls > 1 {
		e.Series = counted(int64(b.calls), b.last)
	}
	return e
}
