// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/why"
)

// Explanation is what a source knows of an object, for a controller and package why.
type Explanation[K comparable] struct {
	// Object has the metadata of the object in the cache. It is nil if there is none.
	Object handler.Object
	// Keys are what the handler returns for the object. Of an object that the cache does not have,
	// a handler.Identity may return the key.
	Keys []K
	// Dropped is why the last event of the object did not add the keys, or nil.
	Dropped *why.Answer
	// Answers are what is wrong with the source, or why the object has no key.
	Answers  []why.Answer
	Evidence []string
}

// question is one call of the handler and the predicates for Explain.
type question[K comparable] struct {
	event  handler.Event
	answer chan verdict[K]
}

// verdict is what became of an event that was only tried.
type verdict[K comparable] struct {
	by   int // the predicate that dropped it, or keeps
	keys []K
	err  error
}

// answer answers questions, one at a time, until ctx ends.
func (f *feed[K]) answer(ctx context.Context) {
	for {
		select {
		case q := <-f.questioned:
			v := verdict[K]{by: keeps}
			v.by, v.keys, v.err = f.consider(ctx, q.event)
			q.answer <- v
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed[K]) consider(ctx context.Context, e handler.Event) (by int, keys []K, err error) {
	exited := true
	defer f.caught(&exited, &err)
	by, e = f.predicate(e)
	if by == keeps {
		var readable bool
		if e, readable = decoded(f.handler, e); readable {
			keys, err = f.handler.Keys(ctx, e)
		} else {
			err = errors.New("the object cannot be decoded")
		}
	}
	exited = false
	return by, keys, err
}

// verdict asks what would become of an event. ok is false if there was no answer in time.
func (f *feed[K]) verdict(ctx context.Context, e handler.Event) (v verdict[K], ok bool) {
	q := question[K]{e, make(chan verdict[K], 1)}
	select {
	case f.questioned <- q:
	case <-f.status.ended:
		return v, false
	case <-ctx.Done():
		return v, false
	}
	select {
	case v = <-q.answer:
		return v, true
	case <-f.status.ended:
		return v, false
	case <-ctx.Done():
		return v, false
	}
}

// Explain explains what the source makes of an object. watches is false if the source has another
// kind. A controller calls it, for package why. It calls the predicates and the handler.
func (k *kind[K]) Explain(ctx context.Context, o why.Object) (e Explanation[K], watches bool) {
	if k.objects == nil || !o.Is(k.objects.GroupVersionKind()) {
		return e, false
	}
	e.Evidence = []string{"source: " + k.name}
	stored, answers := k.objects.Explain(ctx, o.Key())
	e.Object, e.Answers = k.object(stored), answers
	if k.calls.blocked.Load() {
		e.Answers = append(e.Answers, k.blocked())
	}
	again, failure := k.retries.failing(o.Key())
	switch {
	case e.Object != nil:
		k.explain(ctx, &e)
	case len(e.Answers) > 0 || failure != nil:
		e.Keys = k.identify(o)
	}
	if failure != nil {
		a := k.failed(failure)
		a.Cause = fmt.Sprintf("the handler or a predicate of %s failed for an event of the object, which is retried in %s: %s", k.name, until(again), firstLine(failure))
		e.Answers = append([]why.Answer{a}, e.Answers...)
	}
	return e, true
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n") // without the stack
	return text
}

func until(t time.Time) time.Duration { return max(0, time.Until(t)).Round(time.Millisecond) }

// Watches returns the kind, such as Website.v1.example.com.
func (k *kind[K]) Watches() string {
	if k.objects == nil {
		return ""
	}
	gvk := k.objects.GroupVersionKind()
	return strings.TrimSuffix(gvk.Kind+"."+gvk.Version+"."+gvk.Group, ".")
}

// identify returns the key that names an object which the cache does not have.
func (k *kind[K]) identify(o why.Object) (keys []K) {
	named, ok := k.handler.(handler.Identity[K])
	if !ok {
		return nil
	}
	var err error
	exited := true
	defer k.caught(&exited, &err)
	if key, ok := named.Identity(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}); ok {
		keys = append(keys, key)
	}
	exited = false
	return keys
}

// explain fills in what predicates and handler make of the object.
func (k *kind[K]) explain(ctx context.Context, e *Explanation[K]) {
	if !run.Closed(k.began) {
		e.Answers = append(e.Answers, why.Answer{Reason: why.NotStarted, Cause: k.name + " does not run yet", Remedy: "start the manager, or the controller with Run"})
		return
	}
	created, ok := k.verdict(ctx, handler.Event{Op: handler.Create, New: e.Object})
	updated, also := verdict[K]{by: keeps}, false
	if ok {
		updated, also = k.verdict(ctx, handler.Event{Op: handler.Update, Old: e.Object, New: e.Object})
	}
	if !ok || !also {
		e.Answers = append(e.Answers, k.blocked())
		return
	}
	err := created.err
	if e.Keys = created.keys; created.by != keeps {
		e.Keys, err = updated.keys, updated.err
	}
	switch {
	case err != nil:
		e.Answers = append(e.Answers, k.failed(err))
	case created.by != keeps && updated.by != keeps:
		e.Answers = append(e.Answers, k.droppedBy(created.by))
	case len(e.Keys) == 0:
		e.Answers = append(e.Answers, k.unmapped(e.Object))
	}
	e.Dropped = k.lastDrop(e.Object)
}

func (k *kind[K]) blocked() why.Answer {
	return why.Answer{
		Reason: why.HandlerBlocked, Cause: "the handler or a predicate of " + k.name + " does not return; later events of the source wait for it",
		Remedy: "look for the call in the stacks of all goroutines, and let it end with its context",
	}
}

func (k *kind[K]) failed(err error) why.Answer {
	return why.Answer{
		Reason: why.HandlerFailed, Cause: fmt.Sprintf("the handler or a predicate of %s fails for the object: %s", k.name, firstLine(err)),
		Remedy: "correct the handler or the predicate; the event is retried",
	}
}

func (k *kind[K]) droppedBy(predicate int) why.Answer {
	return why.Answer{
		Reason: why.Dropped, Cause: fmt.Sprintf("the predicate %q of %s drops the object's events", k.predicates[predicate], k.name),
		Remedy: "change the object, or the predicate",
	}
}

// explaining is an optional interface of a handler.
type explaining interface {
	// Unmapped returns why an object has no key.
	Unmapped(o handler.Object) string
}

func (k *kind[K]) unmapped(o handler.Object) why.Answer {
	a := why.Answer{
		Reason: why.Unmapped, Cause: "the handler of " + k.name + " maps the object to no key",
		Remedy: "if the object should have a key, correct what the handler looks at",
	}
	if h, ok := k.handler.(explaining); ok {
		a.Cause += ": " + h.Unmapped(o)
	}
	return a
}

// lastDrop returns an answer if a predicate has dropped the event of the stored version.
func (k *kind[K]) lastDrop(o handler.Object) *why.Answer {
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	predicate, at, ok := k.dropped.find(key, o.GetResourceVersion())
	if !ok {
		return nil
	}
	return &why.Answer{
		Reason: why.Dropped, Since: at,
		Cause:  fmt.Sprintf("the predicate %q dropped the object's last change, to version %s", k.predicates[predicate], o.GetResourceVersion()),
		Remedy: "nothing, if Reconcile does not need the change; else remove the predicate, or let it keep such changes",
	}
}
