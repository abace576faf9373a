// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	// Waiting is set if an event of the object may not have reached the handler.
	Waiting *why.Answer
	// Answers are what is wrong with the source, or why the object has no key.
	Answers  []why.Answer
	Evidence []string
}

// question asks what the handler and the predicates make of an object, for Explain.
type question[K comparable] struct {
	name   types.NamespacedName
	object handler.Object // nil: the cache does not have it
	answer chan verdict[K]
}

// verdict is what would become of an object.
type verdict[K comparable] struct {
	created, updated outcome[K] // of a create, and of an update without a change
	named            []K        // the key that names the object, of a handler.Identity
	unmapped         string     // why the object has no key, if the handler knows
}

// outcome is what would become of an event.
type outcome[K comparable] struct {
	by   int // the predicate that dropped it, or keeps
	keys []K
	err  error
}

// answer answers questions, one at a time, until ctx ends.
func (f *feed[K]) answer(ctx context.Context) {
	for {
		select {
		case q := <-f.questioned:
			f.answering.Store(time.Now().UnixNano())
			v := verdict[K]{named: f.identify(q.name)}
			if q.object != nil {
				v.created = f.consider(ctx, handler.Event{Op: handler.Create, New: q.object})
				v.updated = f.consider(ctx, handler.Event{Op: handler.Update, Old: q.object, New: q.object})
				v.unmapped = f.whyUnmapped(q.object)
			}
			f.answering.Store(0)
			q.answer <- v
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed[K]) consider(ctx context.Context, e handler.Event) (o outcome[K]) {
	exited := true
	defer f.caught(&exited, &o.err)
	if o.by, e = f.predicate(e); o.by == keeps {
		var readable bool
		if e, readable = decoded(f.handler, e); readable {
			o.keys, o.err = f.handler.Keys(ctx, e)
		} else {
			o.err = errors.New("the object cannot be decoded")
		}
	}
	exited = false
	return o
}

// identify returns the key that names an object, if the handler can tell.
func (f *feed[K]) identify(name types.NamespacedName) (keys []K) {
	named, ok := f.handler.(handler.Identity[K])
	if !ok {
		return nil
	}
	var err error // a panic: there is no key
	exited := true
	defer f.caught(&exited, &err)
	if key, ok := named.Identity(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}); ok {
		keys = append(keys, key)
	}
	exited = false
	return keys
}

// Names reports whether a key names an object, which may be stored as bytes, if the handler is an
// Identity. A controller calls it.
func (k *kind[K]) Names(key K, o handler.Object) (names bool) {
	identity, ok := k.handler.(handler.Identity[K])
	if !ok {
		return false
	}
	var err error // a panic: it names none
	exited := true
	defer k.caught(&exited, &err)
	if e, readable := decoded(k.handler, handler.Event{Op: handler.Create, New: o}); readable {
		is, ok := identity.Identity(e.New)
		names = ok && is == key
	}
	exited = false
	return names
}

// explaining is an optional interface of a handler.
type explaining interface {
	// Unmapped returns why an object has no key.
	Unmapped(o handler.Object) string
}

func (f *feed[K]) whyUnmapped(o handler.Object) (text string) {
	h, ok := f.handler.(explaining)
	if !ok {
		return ""
	}
	var err error // a panic: there is no text
	exited := true
	defer f.caught(&exited, &err)
	text = h.Unmapped(o)
	exited = false
	return text
}

// hangs is how long a question must have been in progress to count as blocked.
const hangs = 700 * time.Millisecond

// question sends a question to the goroutine of answer, and waits for the verdict. ok is false if
// there was none in time. blocked reports whether a handler or predicate that does not return is
// the reason.
func (f *feed[K]) question(ctx context.Context, name types.NamespacedName, o handler.Object) (v verdict[K], ok, blocked bool) {
	q := question[K]{name, o, make(chan verdict[K], 1)}
	select {
	case f.questioned <- q:
		select {
		case v = <-q.answer:
			return v, true, false
		case <-f.status.ended:
		case <-ctx.Done():
		}
	case <-f.status.ended:
	case <-ctx.Done():
	}
	began := f.answering.Load()
	return v, false, began != 0 && time.Since(time.Unix(0, began)) >= hangs
}

// Explain explains what the source makes of an object. watches is false if the source has another
// kind. A controller calls it, for package why. It calls the predicates and the handler.
func (k *kind[K]) Explain(ctx context.Context, o why.Object) (e Explanation[K], watches bool) {
	if k.objects == nil || !o.Is(k.objects.GroupVersionKind()) {
		return e, false
	}
	e.Evidence = []string{"source: " + k.name}
	stored, answers := k.objects.Explain(o.Key())
	var comparing sync.WaitGroup
	if len(answers) == 0 {
		comparing.Go(func() { answers = k.objects.Compare(ctx, o.Key()) })
	}
	k.explain(ctx, o, stored, &e)
	comparing.Wait()
	if stored == nil && len(answers) == 0 { // it has just come
		e = Explanation[K]{Evidence: e.Evidence}
		stored, answers = k.objects.Explain(o.Key())
		k.explain(ctx, o, stored, &e)
	}
	e.Answers = append(e.Answers, answers...)
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

// explain fills in what predicates and handler make of the object, or would.
func (k *kind[K]) explain(ctx context.Context, o why.Object, stored any, e *Explanation[K]) {
	e.Object = k.object(stored)
	if again, failure := k.retries.failing(o.Key()); failure != nil {
		a := k.failed(failure)
		a.Cause = fmt.Sprintf("the handler or a predicate of %s failed for an event of the object, which is retried in %s: %s", k.name, until(again), firstLine(failure))
		e.Answers = append(e.Answers, a)
	}
	if k.calls.blocked.Load() {
		e.Answers = append(e.Answers, k.blocked())
	}
	switch {
	case run.Closed(k.status.ended):
		e.Answers = append(e.Answers, why.Answer{Reason: why.NotStarted, Cause: k.name + " has stopped", Remedy: "look into the log for the cause"})
		return
	case !run.Closed(k.began):
		e.Answers = append(e.Answers, why.Answer{Reason: why.NotStarted, Cause: k.name + " does not run yet", Remedy: "start the manager, or the controller with Run"})
		return
	}
	v, ok, blocked := k.question(ctx, o.Key(), e.Object)
	switch {
	case blocked:
		e.Answers = append(e.Answers, k.blocked())
	case !ok:
		e.Evidence = append(e.Evidence, "the predicates and the handler were not asked: there was no time")
		if e.Keys = k.sameKey(o.Key()); e.Keys == nil {
			e.Answers = append(e.Answers, why.Answer{
				Reason: why.NoAnswer, Cause: "the predicates and the handler of " + k.name + " could not be asked in time",
				Remedy: "ask again",
			})
		}
	case e.Object == nil:
		e.Keys = v.named
	default:
		k.judge(v, e)
	}
}

// sameKey returns the name as the key if that is what Self returns.
func (k *kind[K]) sameKey(name types.NamespacedName) []K {
	if key, ok := any(name).(K); ok && any(k.handler) == any(handler.Self()) {
		return []K{key}
	}
	return nil
}

func (k *kind[K]) judge(v verdict[K], e *Explanation[K]) {
	of := v.created
	if of.by != keeps {
		of = v.updated
	}
	e.Keys = of.keys
	switch {
	case of.err != nil:
		e.Answers = append(e.Answers, k.failed(of.err))
	case of.by != keeps:
		e.Answers = append(e.Answers, k.droppedBy(v.created.by))
	case len(e.Keys) == 0:
		e.Answers = append(e.Answers, k.unmapped(v.unmapped))
	}
	e.Dropped = k.lastDrop(e.Object)
	if n := k.events.Waiting(); n > 0 {
		e.Waiting = &why.Answer{
			Reason: why.EventWaiting, Cause: fmt.Sprintf("%d events of %s wait until its handler returns; an event of the object may be one of them", n, k.name),
			Remedy: "wait; if it lasts, make the handler and the predicates faster",
		}
	}
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

func (k *kind[K]) unmapped(because string) why.Answer {
	a := why.Answer{
		Reason: why.Unmapped, Cause: "the handler of " + k.name + " maps the object to no key",
		Remedy: "if the object should have a key, correct what the handler looks at",
	}
	if because != "" {
		a.Cause += ": " + because
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
