// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache/internal/listwatch"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/storage"
	"github.com/setpoint-dev/setpoint/why"
)

// Explain is for sources, and for package why. It returns the stored object, not decoded, or nil.
// The answers are why the cache does not have it, or why its informer may be late.
func (h *Handle[T]) Explain(name types.NamespacedName) (stored any, answers []why.Answer) {
	return h.handle.explain(name)
}

// Compare is for sources, and for package why. It compares the stored object's version with the API
// server's, in a request or two. It returns answers if they differ, or if there is no such object.
func (h *Handle[T]) Compare(ctx context.Context, name types.NamespacedName) []why.Answer {
	i, err := h.handle.group.member(name)
	if err != nil {
		return nil
	}
	return i.compareOne(ctx, name)
}

func (h *handle) explain(name types.NamespacedName) (stored any, answers []why.Answer) {
	if err := h.usable(); err != nil {
		return nil, []why.Answer{{Reason: why.Failing, Cause: err.Error(), Remedy: "correct the handle"}}
	}
	i, err := h.group.member(name)
	if err != nil {
		return nil, []why.Answer{h.outside(name)}
	}
	if a := i.explain(); a != nil {
		answers = append(answers, *a)
	}
	if !i.HasSynced() {
		return nil, answers
	}
	stored, wrong := i.lookUp(name)
	if wrong != nil {
		answers = append(answers, *wrong)
	}
	return stored, answers
}

// outside explains that no informer of the handle keeps the name.
func (h *handle) outside(name types.NamespacedName) why.Answer {
	s := h.group.scope
	switch {
	case name.Namespace == "" && s.Namespaces != nil:
		return nameless(h.gvk.Kind)
	case s.Namespaces != nil:
		all := s.Namespaces.Elements()
		slices.Sort(all)
		return why.Answer{
			Reason: why.OutsideScope,
			Cause:  fmt.Sprintf("the cache keeps %s only of the namespaces %s", h.gvk.Kind, strings.Join(all, ", ")),
			Remedy: "add the namespace " + name.Namespace + " to Namespaces of cache.Options or cache.Scope",
		}
	default:
		return why.Answer{
			Reason: why.OutsideScope, Cause: "the cache keeps only some " + h.gvk.Kind + ", by name",
			Remedy: "add " + object.Name(name) + " to Names of cache.Scope", Evidence: []string{"scope: " + h.group.String()},
		}
	}
}

func nameless(kind string) why.Answer {
	return why.Answer{Reason: why.NotFound, Cause: kind + " is a namespaced kind, and the question names no namespace", Remedy: "name the namespace"}
}

// explain returns nil if the informer follows the API server.
func (i *informer) explain() *why.Answer {
	phase, since, err := i.at()
	a := &why.Answer{Since: since, Evidence: []string{"informer: " + i.state().String()}}
	switch phase {
	case hook.Synced:
		return nil
	case hook.NotStarted:
		a.Reason, a.Cause, a.Remedy = why.NotStarted, "the cache of "+i.key.gvk.Kind+" does not run yet", "start the manager or the cache with Run"
	case hook.Syncing:
		a.Reason, a.Cause = why.NotSynced, "the cache of "+i.key.gvk.Kind+" is in its initial list"
		a.Remedy = "wait; if it does not end, look at the API server's latency, and at this process's memory limit"
	case hook.Stopped:
		a.Reason, a.Cause, a.Remedy = why.NotStarted, "the cache of "+i.key.gvk.Kind+" has stopped", "look into the log for the cause of the stop"
	case hook.Waiting:
		a.Reason, a.Cause = why.NotServed, "the API server does not serve "+i.key.kind()
		a.Remedy = "install the CustomResourceDefinition, or correct the version"
	case hook.Failing:
		a.Reason, a.Cause, a.Remedy = why.Failing, fmt.Sprintf("the cache of %s cannot list or watch: %v", i.key.gvk.Kind, err), "make the API server answer; the cache then continues by itself"
		if why.OfError(err) == why.Forbidden {
			a.Reason, a.Remedy = why.Forbidden, "give the ServiceAccount the rights list and watch on "+i.resource()
		}
	}
	return a
}

func (i *informer) resource() string {
	if m := i.view.Mapping.Load(); m != nil {
		return m.Resource.GroupResource().String()
	}
	guess, _ := meta.UnsafeGuessKindToResource(i.key.gvk)
	return guess.GroupResource().String()
}

// lookUp reads the store without waiting.
func (i *informer) lookUp(name types.NamespacedName) (stored any, a *why.Answer) {
	if err := i.fits(name.Namespace, true); err != nil {
		if name.Namespace == "" {
			return nil, new(nameless(i.key.gvk.Kind))
		}
		return nil, &why.Answer{Reason: why.NotFound, Cause: i.key.gvk.Kind + " is a cluster-scoped kind, and the question names a namespace", Remedy: "leave the namespace empty"}
	}
	if a := i.otherSlot(name); a != nil {
		return nil, a
	}
	stored, _, _ = i.indexer().GetByKey(object.Name(name)) // fails for no name
	err := i.Undecodable(name)
	if r, packed := stored.(storage.Record); packed && err == nil {
		_, err = r.Shared() // it is decoded by the first reader
	}
	if err != nil {
		return nil, whyUndecodable(err)
	}
	return stored, nil
}

// whyUndecodable names the field, if it is known. The error itself may have its value.
func whyUndecodable(err error) *why.Answer {
	a := &why.Answer{Reason: why.Undecodable, Cause: "the object does not fit its Go type", Remedy: "correct the object, or the Go type; the log has the error"}
	var field *json.UnmarshalTypeError
	if errors.As(err, &field) {
		kind, _, _ := strings.Cut(field.Value, " ")
		a.Cause = fmt.Sprintf("the object does not fit its Go type: the field %s is a %s, not a %s", field.Field, kind, field.Type)
	}
	return a
}

// otherSlot returns nil if the informer keeps the slot of a name, as far as the name decides.
func (i *informer) otherSlot(name types.NamespacedName) *why.Answer {
	if i.key.slots == nil || i.key.slotOwner.Kind != "" {
		return nil
	}
	slot, err := i.Slot(name)
	if err != nil {
		return &why.Answer{Reason: why.NoSlot, Cause: fmt.Sprintf("the object has no slot: %v", err), Remedy: "correct the Partitioner"}
	}
	var one listwatch.SlotSet
	one[slot] = true
	switch {
	case !i.key.slots.has(slot):
		return &why.Answer{Reason: why.OtherMember, Cause: fmt.Sprintf("slot %d, which has the object, is not in the cache of this replica", slot), Remedy: "ask the other members"}
	case !i.hasSlots(&one):
		return &why.Answer{Reason: why.NotSynced, Cause: fmt.Sprintf("the cache is listing slot %d, which has the object", slot), Remedy: "wait"}
	default:
		return nil
	}
}

const (
	// arrival is how long an event of a change that the API server has just shown may take.
	arrival = 250 * time.Millisecond
	// liveLimit is how long the API server may take to answer.
	liveLimit = 250 * time.Millisecond
)

// compareOne compares the stored version with the one of the API server. An event that is on its
// way may still come. Before the answer that one is missing, compareOne asks again: the object may
// have changed after the first answer.
func (i *informer) compareOne(ctx context.Context, name types.NamespacedName) []why.Answer {
	live, err := i.live(ctx, name)
	for end, again := time.Now().Add(arrival), false; ; {
		stored, _ := i.lookUp(name)
		switch {
		case err != nil:
			return i.unknown(stored, name, err)
		case live == nil && stored == nil:
			return []why.Answer{{
				Reason: why.NotFound, Cause: fmt.Sprintf("there is no %s %s at the API server", i.key.gvk.Kind, object.Name(name)),
				Remedy: "check the kind, the namespace and the name",
			}}
		case live != nil && !i.selects(live):
			return []why.Answer{i.unselected(live)}
		case i.isCurrent(stored, live):
			return nil
		case stored == nil && i.key.fields != "":
			return []why.Answer{i.late(stored, live)}
		case time.Now().Before(end) && run.Sleep(ctx, arrival/20) == nil:
		case !again && ctx.Err() == nil:
			again = true
			live, err = i.live(ctx, name)
		default:
			return []why.Answer{i.late(stored, live)}
		}
	}
}

// live returns nil if the API server has no such object.
func (i *informer) live(ctx context.Context, name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	if i.env.backend == nil || i.view.Mapping.Load() == nil {
		return nil, fmt.Errorf("the API server was not asked about %s", i.key.gvk.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, liveLimit)
	defer cancel()
	list, err := i.listMetadata(ctx, name)
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// unknown is the answer without the API server's.
func (i *informer) unknown(stored any, name types.NamespacedName, err error) []why.Answer {
	if stored != nil {
		return nil
	}
	a := why.Answer{
		Reason: why.NotFound, Cause: fmt.Sprintf("the cache has no %s %s", i.key.gvk.Kind, object.Name(name)),
		Remedy: "check the kind, the namespace and the name",
	}
	if err != nil {
		a.Evidence = []string{fmt.Sprintf("the API server gave no answer: %v", err)}
	}
	return []why.Answer{a}
}

func (i *informer) selects(live *metav1.PartialObjectMetadata) bool {
	if i.key.labels == "" {
		return true
	}
	selector, err := labels.Parse(i.key.labels)
	return err != nil || selector.Matches(labels.Set(live.Labels))
}

func (i *informer) unselected(live *metav1.PartialObjectMetadata) why.Answer {
	var other []string
	selector, _ := labels.Parse(i.key.labels) // succeeds: see selects
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch {
		case r.Matches(labels.Set(live.Labels)):
		case labels.Set(live.Labels).Has(r.Key()):
			other = append(other, "the object's label "+r.Key()+" has another value")
		default:
			other = append(other, "the object has no label "+r.Key())
		}
	}
	return why.Answer{
		Reason: why.OutsideScope, Cause: fmt.Sprintf("the cache keeps only %s with the labels %q; %s", i.key.gvk.Kind, i.key.labels, strings.Join(other, ", ")),
		Remedy: "change the object's labels, or Labels of cache.Options or cache.Scope",
	}
}

func (i *informer) isCurrent(stored any, live *metav1.PartialObjectMetadata) bool {
	o, ok := stored.(Object)
	switch {
	case !ok || live == nil:
		return !ok && live == nil
	default:
		return o.GetUID() == live.UID && !object.Before(o.GetResourceVersion(), live.ResourceVersion)
	}
}

// late explains an object that the store does not show as it is.
func (i *informer) late(stored any, live *metav1.PartialObjectMetadata) why.Answer {
	a := why.Answer{Reason: why.Late, Remedy: "wait 3 minutes: then the cache compares itself with the API server, and lists again if need be"}
	o, ok := stored.(Object)
	switch {
	case live == nil:
		a.Cause = "the object is deleted, but the watch has not shown it"
	case !ok && i.key.fields != "":
		a.Reason, a.Remedy = why.OutsideScope, "change the object, or Fields of cache.Scope"
		a.Cause = fmt.Sprintf("the cache keeps only %s with the fields %q, and does not have the object", i.key.gvk.Kind, i.key.fields)
	case !ok && i.key.slotOwner.Kind != "":
		a.Reason, a.Cause = why.OtherMember, "the object's owner is in no slot of this replica"
		a.Remedy = "ask the other members"
	case !ok:
		a.Cause = fmt.Sprintf("the API server has the object at version %s, but the watch has not shown it", live.ResourceVersion)
	default:
		a.Cause = fmt.Sprintf("the API server has version %s, but the watch has shown only version %s", live.ResourceVersion, o.GetResourceVersion())
	}
	a.Evidence = []string{"informer: " + i.state().String()}
	return a
}
