// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// labelAgain is how long children wait after a patch has failed.
const labelAgain = 10 * time.Second

// newSlots returns the set of slots for caches, which the API server selects as far as it can.
func newSlots(o shard.Options, lease string) *cache.Slots {
	var by []cache.Selection
	if o.By.NamespaceRanges() {
		by = append(by, cache.SelectByNamespace())
	}
	if o.LabelChildren {
		by = append(by, cache.SelectByLabel(shard.LabelKey(lease), o.By.LabelValue))
	}
	return cache.NewSlots(o.By.Slot, by...)
}

// labelChildren begins to label the children that caches show without the right label, with
// shard.Options.LabelChildren. Write handles label what Reconciles write, but a Reconcile may find
// nothing to write.
func (m *Manager) labelChildren() {
	if m.Shards() == nil || !m.o.Shards.LabelChildren {
		return
	}
	l := &labeler{
		client: m.client, slots: m.slots, owned: m.Shards().Owned(), report: m.report,
		key: shard.LabelKey(m.o.LeaderElection.Lease), value: m.o.Shards.By.LabelValue,
		due: map[childKey]*child{}, news: make(chan struct{}, 1), refused: map[schema.GroupVersionKind]bool{},
	}
	m.slots.OnStored(l.note)
	m.AddEverywhere("the labels of children", l.run)
}

// labeler labels children with the slot of their controller, one at a time.
type labeler struct {
	client *client.Client
	slots  *cache.Slots
	owned  *owned.Slots
	report *report
	key    string
	value  func(owner schema.GroupKind, slot uint8) string

	mu      sync.Mutex // guards due
	due     map[childKey]*child
	news    chan struct{}
	refused map[schema.GroupVersionKind]bool // used by run only
}

type childKey struct {
	kind schema.GroupVersionKind
	name types.NamespacedName
}

type child struct {
	slot uint8
	meta *metav1.PartialObjectMetadata
}

// note is called by informers. The newest version counts.
func (l *labeler) note(c cache.Child) {
	of := childKey{c.Kind, client.ObjectKey(c.Object)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Object.GetLabels()[l.key] == l.value(c.Owner, c.Slot) || c.Object.GetDeletionTimestamp() != nil {
		delete(l.due, of)
		return
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(c.Kind)
	o.Namespace, o.Name, o.UID, o.ResourceVersion = of.name.Namespace, of.name.Name, c.Object.GetUID(), c.Object.GetResourceVersion()
	o.Labels, o.OwnerReferences = maps.Clone(c.Object.GetLabels()), slices.Clone(c.Object.GetOwnerReferences())
	l.due[of] = &child{c.Slot, o}
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// run labels children of slots that this process owns. Children of slots that it prepares to adopt
// wait. After an error, all wait. If the API server refuses one child, the others are labelled
// first.
func (l *labeler) run(ctx context.Context) error {
	for {
		news, again := l.news, (<-chan time.Time)(nil)
		all, changed := l.owned.Current()
		bySlot := map[uint8]*owned.Adoption{}
		for _, a := range all {
			bySlot[a.Slot] = a
		}
		due := l.take(bySlot)
		for of, c := range due {
			err := l.label(ctx, bySlot[c.slot], of, c)
			if err == nil {
				delete(due, of)
				continue
			}
			if again == nil {
				l.report.logger().Warn("a child was not labelled yet; every replica receives it until then",
					"kind", of.kind.Kind, "object", of.name.String(), "err", err)
			}
			news, again = nil, time.After(labelAgain)
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) { // others would fail, too
				break
			}
		}
		l.giveBack(due)
		select {
		case <-news:
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// take removes the due children in adopted slots. It forgets those in slots that no cache keeps.
func (l *labeler) take(adopted map[uint8]*owned.Adoption) map[childKey]*child {
	kept := l.slots.Elements()
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[childKey]*child{}
	for of, c := range l.due {
		if adopted[c.slot] != nil {
			taken[of] = c
		}
		if taken[of] != nil || !slices.Contains(kept, c.slot) {
			delete(l.due, of)
		}
	}
	return taken
}

// giveBack makes children due again, unless they have changed.
func (l *labeler) giveBack(all map[childKey]*child) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, c := range all {
		if l.due[of] == nil {
			l.due[of] = c
		}
	}
}

// label labels one child. If the object has changed, its next event comes to note. It returns an
// error if it must be called again.
func (l *labeler) label(ctx context.Context, a *owned.Adoption, of childKey, c *child) error {
	if ctx.Err() != nil || l.refused[of.kind] || !a.Begin() {
		return nil
	}
	defer a.End()
	h := client.ForKind[*metav1.PartialObjectMetadata](l.client, of.kind)
	_, err := client.PatchFrom(a.Context(ctx), h, c.meta, c.meta, client.OptimisticLock())
	if ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || errors.Is(err, term.ErrFenced) {
		return nil
	}
	if l.refused[of.kind] = apierrors.IsForbidden(err); l.refused[of.kind] {
		l.report.logger().Warn("children are not labelled; every replica receives them until their owners write them; grant patch",
			"kind", of.kind.Kind, "object", of.name.String(), "err", err)
		return nil
	}
	return err
}
