// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/why"
)

// explaining is an optional interface of a source.
type explaining[K comparable] interface {
	// Explain reports false if the source has another kind.
	Explain(ctx context.Context, o why.Object) (e source.Explanation[K], watches bool)
	// Watches returns the kind.
	Watches() string
}

// Watches returns the kinds of the sources, for package why.
func (c *Controller[K]) Watches() (kinds []string) {
	for _, i := range c.inputs.all() {
		if s, ok := i.source.(explaining[K]); ok {
			kinds = append(kinds, s.Watches())
		}
	}
	return kinds
}

// Needs returns the rights that the handlers of the sources need. The cache knows the rights of the
// informers.
func (c *Controller[K]) Needs() (all []rbac.Need) {
	for _, i := range c.inputs.all() {
		if n, ok := i.source.(rbac.Needer); ok {
			all = append(all, n.Needs()...)
		}
	}
	return all
}

// Explain explains what the controller does with an object: see package why. It calls the handlers
// and the predicates of its sources.
func (c *Controller[K]) Explain(ctx context.Context, o why.Object) []why.Answer {
	all := c.explanations(ctx, o)
	var answers []why.Answer
	for _, key := range all.order {
		answers = append(answers, c.explainKey(all.keys[key], o.Values)...)
	}
	if all.more > 0 && len(answers) > 0 {
		answers[0].Evidence = append(answers[0].Evidence, fmt.Sprintf("the object has %d more keys", all.more))
	}
	answers = append(answers, all.keyless...)
	for i := range answers {
		answers[i].Controller = c.name
	}
	return answers
}

// explanations asks the sources that watch the object's kind.
func (c *Controller[K]) explanations(ctx context.Context, o why.Object) *explanations[K] {
	inputs := c.inputs.all()
	found := make([]*source.Explanation[K], len(inputs))
	var asking sync.WaitGroup
	for n, i := range inputs {
		if s, ok := i.source.(explaining[K]); ok {
			asking.Go(func() {
				if e, watches := s.Explain(ctx, o); watches {
					found[n] = &e
				}
			})
		}
	}
	asking.Wait()
	all := &explanations[K]{keys: map[K]*explained[K]{}}
	for _, e := range found {
		if e != nil {
			all.add(e)
		}
	}
	return all
}

// mostKeys is how many keys of an object are explained.
const mostKeys = 20

// explanations are the explanations of all sources about one object.
type explanations[K comparable] struct {
	keys    map[K]*explained[K]
	order   []K
	more    int
	keyless []why.Answer
}

// explained is what the sources know about one key of the object.
type explained[K comparable] struct {
	key      K
	object   handler.Object // nil if the caches do not have it
	dropped  *why.Answer    // why the last event did not add the key
	waiting  *why.Answer    // why the last event may not have added it yet
	wrong    []why.Answer
	evidence []string
}

func (all *explanations[K]) add(e *source.Explanation[K]) {
	for _, key := range e.Keys {
		of := all.keys[key]
		if of == nil {
			if len(all.order) == mostKeys {
				all.more++
				continue
			}
			of = &explained[K]{key: key, object: e.Object, dropped: e.Dropped}
			all.keys[key], all.order = of, append(all.order, key)
		}
		of.wrong, of.evidence = append(of.wrong, e.Answers...), append(of.evidence, e.Evidence...)
		of.waiting = cmp.Or(of.waiting, e.Waiting)
		if e.Dropped == nil { // one of the sources has delivered the event
			of.dropped = nil
		}
	}
	if len(e.Keys) > 0 {
		return
	}
	for _, a := range e.Answers {
		a.Evidence = append(a.Evidence, e.Evidence...)
		all.keyless = append(all.keyless, a)
	}
}

// explainKey returns the state of the key, and what is wrong with its sources. The state comes
// first, unless nothing is due.
func (c *Controller[K]) explainKey(of *explained[K], values bool) (all []why.Answer) {
	state, idle := c.stateOfKey(of)
	switch {
	case of.object == nil && idle:
		all = of.wrong
	case (idle || state.Reason == why.NotSynced) && len(of.wrong) > 0: // they are more exact
		all = append(slices.Clone(of.wrong), state)
	default:
		all = append([]why.Answer{state}, of.wrong...)
	}
	key, past := fmt.Sprint(of.key), c.describePast(of.key)
	for i := range all {
		all[i].Key = key
		all[i].Evidence = append(all[i].Evidence, of.evidence...)
	}
	if len(all) == 0 {
		return nil
	}
	if values {
		all[0].Evidence = append(all[0].Evidence, c.describeValues(of.key, all[0].Reason)...)
	}
	all[0].Evidence = append(all[0].Evidence, c.notes.of(of.key)...)
	all[0].Evidence = append(all[0].Evidence, past...)
	return all
}

// describePast has a line for each Reconcile of a key that is remembered, newest first.
func (c *Controller[K]) describePast(key K) (lines []string) {
	runs, name := c.past.of(key), fmt.Sprint(key)
	for i, r := range slices.Backward(runs) {
		lines = append(lines, r.describe(name))
		if i < len(runs)-1 {
			continue
		}
		for _, w := range c.past.history.chain(name, r) {
			lines = append(lines, w.String())
		}
	}
	if lines == nil {
		what := "no Reconcile of the key since the start of this process at "
		if c.past.forgot.Load() {
			what = "no Reconcile of the key is remembered; the process began at "
		}
		lines = append(lines, what+c.began.Format(time.RFC3339))
	}
	return lines
}

// stateOfKey returns why the key is not reconciled now. idle is true if nothing is due.
func (c *Controller[K]) stateOfKey(of *explained[K]) (a why.Answer, idle bool) {
	if a := c.explainLead(of.key); a != nil {
		return *a, false
	}
	if a, ok := c.explainRunning(of.key); ok {
		return a, false
	}
	record, queue := c.records.look(of.key), c.current.Load()
	k, known := queue.Lookup(of.key)
	if known {
		return c.explainQueued(&k, &record), false
	}
	if record.past != nil && record.past.failure != nil {
		return failing(record.past.failure, &k), false
	}
	return c.settled(of), true
}

// explainLead returns why the controller does not reconcile at all, or not this key, or nil.
func (c *Controller[K]) explainLead(key K) *why.Answer {
	leads := c.pool.state()
	switch {
	case !c.warmed.Load():
		return &why.Answer{Reason: why.NotStarted, Cause: "the controller does not run yet", Remedy: "start its manager with Run"}
	case c.current.Load().ShuttingDown():
		return &why.Answer{Reason: why.NotStarted, Cause: "the controller has stopped", Remedy: "look into the log for the cause of the stop"}
	case !run.Closed(c.started) || leads.leading && !run.Closed(c.synced) && len(leads.workers) == 0:
		return c.explainInputs()
	case !leads.leading:
		return &why.Answer{Reason: why.NotLeading, Cause: "this replica does not lead", Remedy: "ask the replica that leads"}
	}
	if what := c.consistency.inherited.waits.Load(); what != nil {
		return &why.Answer{Reason: why.TakingOver, Cause: "the new leader waits until its caches show what the previous one wrote: " + *what, Remedy: "wait, at most Options.ReadYourWrites"}
	}
	return c.explainSlot(key)
}

// explainInputs explains what the workers wait for.
func (c *Controller[K]) explainInputs() *why.Answer {
	a := why.Answer{Reason: why.NotSynced, Cause: "the controller waits for its sources", Remedy: "wait"}
	i := c.inputs.unsettled()
	if i == nil {
		return &a
	}
	_, state := stateOf(i.Readable)
	a.Cause = "the controller waits for " + state
	a.Remedy = "wait; if it lasts, look for the cause in the state of the informer"
	if err := i.Stale(); err != nil {
		a.Evidence = []string{err.Error()}
	}
	return &a
}

// explainSlot returns nil if this replica serves the key's slot.
func (c *Controller[K]) explainSlot(key K) *why.Answer {
	d := c.shards.of.Load()
	if d == nil {
		return nil
	}
	slot, err := place(d.partition, c.shards.place, key)
	switch {
	case err != nil:
		return &why.Answer{Reason: why.NoSlot, Cause: fmt.Sprintf("the key has no slot, so no replica serves it: %v", err), Remedy: "correct the Partitioner, or ShardKey of the key"}
	case d.serves[slot].Load() == nil:
		return elsewhere(d.partition, slot)
	default:
		return nil
	}
}

func elsewhere(all term.Partition, slot uint8) *why.Answer {
	a := why.Answer{Reason: why.OtherMember, Cause: fmt.Sprintf("this replica does not serve slot %d of the key", slot), Remedy: "ask the other members"}
	group, ok := all.(interface {
		Owner(slot uint8) (identity, unserved string)
	})
	if !ok {
		return &a
	}
	owner, unserved := group.Owner(slot)
	switch {
	case unserved != "":
		a.Reason, a.Cause = why.Unserved, fmt.Sprintf("no member serves slot %d of the key: %s", slot, unserved)
		a.Remedy = "wait; if it lasts, restart the member that the reason names"
	case owner != "":
		a.Cause, a.Remedy = fmt.Sprintf("%s serves slot %d of the key", owner, slot), "ask "+owner
	}
	return &a
}

// settled explains a key with nothing to do.
func (c *Controller[K]) settled(of *explained[K]) why.Answer {
	o := of.object
	if o == nil {
		return why.Answer{Reason: why.Done, Cause: "the object does not exist, and nothing is due"}
	}
	a := c.done(of)
	observed, ok := observedGeneration(o)
	f := c.records.look(of.key).fight
	switch {
	case o.GetDeletionTimestamp() != nil:
		a = why.Answer{
			Reason: why.Terminating, Since: o.GetDeletionTimestamp().Time,
			Cause:  "the object is being deleted and waits for its finalizers " + strings.Join(o.GetFinalizers(), ", ") + "; nothing is due here",
			Remedy: "make the owner of each finalizer remove it",
		}
	case c.pausedAll.Load():
		a.Reason, a.Cause, a.Remedy = why.Paused, "the controller is paused; "+a.Cause, "call Resume"
	case f.fights(c.now()):
		a = fought(f)
	case of.waiting != nil:
		a = *of.waiting
	case ok && observed < o.GetGeneration():
		a.Reason, a.Remedy = why.StatusOld, "write status.observedGeneration at the end of each Reconcile, or requeue after an early return"
		a.Cause = fmt.Sprintf("the status is of generation %d, the spec of %d; %s", observed, o.GetGeneration(), a.Cause)
	}
	a.Evidence = append(a.Evidence, "the cache has version "+o.GetResourceVersion())
	return a
}

// done explains that nothing is due for a key.
func (c *Controller[K]) done(of *explained[K]) why.Answer {
	runs := c.past.of(of.key)
	var last *pastRun
	if len(runs) > 0 {
		last = &runs[len(runs)-1]
	}
	own := false // its own write needs no further Reconcile
	if last != nil && of.object != nil {
		own, _ = last.wrote(nameText(of.object), of.object.GetResourceVersion())
	}
	if of.dropped != nil && !own {
		return *of.dropped
	}
	if last == nil {
		return why.Answer{Reason: why.Done, Cause: "nothing is due, and this process remembers no Reconcile of the key"}
	}
	at, because := time.Unix(0, last.at), last.because(fmt.Sprint(of.key))
	if because != "" {
		because = ", because of " + because + ","
	}
	result := "succeeded"
	if last.failed() { // its failure was forgotten with a slot
		result = "failed"
	}
	return why.Answer{
		Reason: why.Done, Since: at,
		Cause: fmt.Sprintf("the last Reconcile%s %s %s ago, %s and asked for no other; nothing is due until the next event", because, result, since(at), last.effect()),
	}
}

func nameText(o handler.Object) string {
	return textOf(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
}

// observedGeneration reads status.observedGeneration. Conditions may be older by design.
func observedGeneration(o handler.Object) (observed int64, ok bool) {
	var of struct {
		Status struct{ ObservedGeneration *int64 }
	}
	text, err := encoded(o)
	if err != nil || json.Unmarshal(text, &of) != nil || of.Status.ObservedGeneration == nil {
		return 0, false
	}
	return *of.Status.ObservedGeneration, true
}

// encoded calls the object's code.
func encoded(o handler.Object) (text []byte, err error) {
	defer run.Recover(&err)
	if r, packed := o.(interface {
		Shared() (handler.Object, error)
	}); packed {
		if o, err = r.Shared(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(o)
}
