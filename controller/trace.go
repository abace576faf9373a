// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/why"
)

// Traced is a Reconcile of a traced key. Unlike other answers of this package, it has the content
// of objects, except Secrets.
type Traced struct {
	Controller  string `json:"controller"`
	Key         string `json:"key"`
	ReconcileID string `json:"reconcileID"`
	// Began and Took are its start and its duration.
	Began time.Time     `json:"began"`
	Took  time.Duration `json:"took"` // in ns
	// Because has a line for each reason of the Reconcile.
	Because []string      `json:"because,omitempty"`
	Outcome hook.Outcome  `json:"outcome"`
	Error   string        `json:"error,omitempty"`
	After   time.Duration `json:"requeueAfter,omitempty"` // in ns
	// Reads are the first 100 objects that it has read from caches, in the order of the reads, and
	// Requests its first requests, as in a ledger.
	Reads    []TracedRead    `json:"reads,omitempty"`
	Requests []TracedRequest `json:"requests,omitempty"`
	// Lost counts the Reconciles before this one whose Traced was dropped, because the receiver was
	// too slow.
	Lost int `json:"lost,omitempty"`
}

// TracedRead is a read of one object from a cache.
type TracedRead struct {
	Kind   string `json:"kind"`
	Object string `json:"object"` // its name, or namespace/name
	// Missing reports that the cache did not have the object.
	Missing bool        `json:"missing,omitempty"`
	Value   TracedValue `json:"value"`
}

// TracedRequest is a request to the API server.
type TracedRequest struct {
	// Request is for example "patch deployments.apps default/web".
	Request string        `json:"request"`
	Status  int           `json:"status,omitempty"` // 0 without an answer
	Took    time.Duration `json:"took"`             // in ns
	Error   string        `json:"error,omitempty"`
	// Effect, Version and Value are only set for a write. Value is the object in the answer.
	Effect  ledger.Effect `json:"effect,omitempty"`
	Version string        `json:"version,omitempty"`
	Value   TracedValue   `json:"value"`
}

// TracedValue is an object, or why it is not shown.
type TracedValue struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Hidden string          `json:"hidden,omitempty"`
}

const (
	mostTraces = 4       // at once
	mostTraced = 100     // reads of a Reconcile, and requests
	mostValues = 1 << 20 // bytes of the objects of a Reconcile's reads, and of its requests
	traceAhead = 8       // Reconciles that wait for the receiver
)

// Trace passes each Reconcile of an object's keys to receive until ctx ends, after it has returned.
// The keys are those that the sources map the object to at the call: see Explain. It returns an
// error if there is none, if this replica reconciles none of them, if 4 traces run already, and at
// the end of the controller. watches is false if no source has the kind. Reconciles do not wait for
// receive, which Trace calls; but a traced one takes longer.
func (c *Controller[K]) Trace(ctx context.Context, o why.Object, receive func(Traced)) (watches bool, err error) {
	asking, cancel := context.WithTimeout(ctx, time.Second)
	all := c.explanations(asking, o)
	cancel()
	if len(all.order)+len(all.keyless) == 0 {
		return false, nil
	}
	if len(all.order) == 0 {
		return true, c.named(errors.New(all.keyless[0].Cause))
	}
	keys := slices.DeleteFunc(slices.Clone(all.order), func(key K) bool { return c.explainLead(key) != nil })
	if len(keys) == 0 {
		if a := c.explainLead(all.order[0]); a != nil {
			return true, c.named(errors.New(a.Cause))
		}
		keys = all.order // it has just become so
	}
	t := &trace{reconciles: make(chan Traced, traceAhead)}
	if !c.traces.add(t, keys) {
		return true, c.named(fmt.Errorf("%d traces run already; end one", mostTraces))
	}
	defer c.traces.remove(t)
	for {
		select {
		case r := <-t.reconciles:
			receive(r)
		case <-c.stopped:
			return true, c.named(errors.New("it has stopped"))
		case <-ctx.Done():
			return true, nil
		}
	}
}

// trace is a call of Trace.
type trace struct {
	reconciles chan Traced
	lost       atomic.Int32
}

func (t *trace) send(r Traced) {
	lost := t.lost.Swap(0)
	r.Lost = int(lost)
	select {
	case t.reconciles <- r:
	default:
		t.lost.Add(lost + 1)
	}
}

// traces are the traces in progress. It is cheap to ask without any.
type traces[K comparable] struct {
	mu  sync.Mutex // guards changes
	all atomic.Pointer[map[*trace][]K]
}

func (t *traces[K]) add(one *trace, keys []K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[*trace][]K{one: keys}
	if now := t.all.Load(); now != nil {
		maps.Copy(next, *now)
	}
	if len(next) > mostTraces {
		return false
	}
	t.all.Store(&next)
	return true
}

func (t *traces[K]) remove(one *trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(*t.all.Load())
	delete(next, one)
	if len(next) == 0 {
		t.all.Store(nil)
		return
	}
	t.all.Store(&next)
}

func (t *traces[K]) of(key K) (all []*trace) {
	now := t.all.Load()
	if now == nil {
		return nil
	}
	for one, keys := range *now {
		if slices.Contains(keys, key) {
			all = append(all, one)
		}
	}
	return all
}

// traced describes a Reconcile that has returned.
func (r *running[K]) traced(end *ending, took time.Duration) Traced {
	c := r.of.controller
	reasons, _ := r.item.Reasons()
	t := Traced{
		Controller: c.name, Key: fmt.Sprint(r.item.Key()), ReconcileID: r.id(), Began: c.began.Add(r.since), Took: took,
		Because: describe(reasons), Outcome: end.outcome, After: end.result.RequeueAfter, Reads: r.reads.traced.list(),
	}
	if end.err != nil {
		t.Error = end.err.Error()
	}
	all := r.ledger.Load()
	if all == nil || all == r.of.over {
		return t
	}
	writes, requests := all.Writes(), all.Requests()
	var values values
	for i := range requests[:min(len(requests), mostTraced)] {
		t.Requests = append(t.Requests, values.request(&requests[i], writes))
	}
	return t
}

// values limits the bytes of objects.
type values struct{ bytes int }

func (v *values) request(q *ledger.Request, writes []ledger.Write) TracedRequest {
	one := TracedRequest{Request: q.String(), Status: q.Status, Took: q.Took}
	if q.Err != nil {
		one.Error = q.Err.Error()
	}
	i := slices.IndexFunc(writes, func(w ledger.Write) bool { return w.Started.Equal(q.Started) && w.Verb == q.Verb && w.Path == q.Path })
	if i < 0 {
		return one
	}
	w := &writes[i]
	one.Effect, one.Version = w.Effect, w.ResourceVersion
	if o, ok := w.Object.(handler.Object); ok {
		one.Value = v.of(w.Group, w.Resource, o)
	}
	return one
}

// of calls the object's code. what is a kind or a resource.
func (v *values) of(group, what string, o handler.Object) TracedValue {
	if hides(group, what, o) {
		return TracedValue{Hidden: hidden}
	}
	text, err := encoded(o)
	if err != nil {
		return TracedValue{Hidden: err.Error()}
	}
	if v.bytes += len(text); v.bytes > mostValues {
		return TracedValue{Hidden: fmt.Sprintf("it has %d bytes; a trace shows at most %d of a Reconcile", len(text), mostValues)}
	}
	return TracedValue{JSON: text}
}

const hidden = "the content of Secrets and tokens is never shown"

// hides reports whether an object's content is never shown. what is a kind or a resource, as far as
// it is known: of a foreign informer it may be the name of a Go type.
func hides(group, what string, o handler.Object) bool {
	own := o.GetObjectKind().GroupVersionKind()
	secret := func(group, what string) bool {
		return group == "" && (what == "Secret" || what == "secrets") || group == "authentication.k8s.io"
	}
	switch o.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if own.Kind == "" && (what == "" || what == "Unstructured" || what == "PartialObjectMetadata") {
			return true // its kind is unknown
		}
	}
	return secret(group, what) || secret(own.Group, own.Kind) || isSecret(reflect.TypeOf(o))
}

// isSecret reports whether a Go type is or embeds a Secret.
func isSecret(t reflect.Type) bool {
	if t = indirect(t); t.Kind() != reflect.Struct {
		return false
	}
	if t == reflect.TypeFor[corev1.Secret]() {
		return true
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && isSecret(f.Type) {
			return true
		}
	}
	return false
}

func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// keptReads are the reads of a traced Reconcile.
type keptReads struct {
	mu     sync.Mutex // guards what follows
	all    []TracedRead
	values values
}

func (k *keptReads) add(kind schema.GroupVersionKind, name types.NamespacedName, stored any) {
	if name.Name == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) == mostTraced {
		return
	}
	read := TracedRead{Kind: kind.Kind, Object: textOf(name), Missing: stored == nil}
	if o, ok := stored.(handler.Object); ok {
		read.Value = k.values.of(kind.Group, kind.Kind, o)
	}
	k.all = append(k.all, read)
}

func (k *keptReads) list() []TracedRead {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all) // a goroutine that outlives the Reconcile may go on reading
}
