// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// SlotSelector selects objects by slot. Package cache implements it.
type SlotSelector interface {
	// Slot returns the slot of a key.
	Slot(key types.NamespacedName) (uint8, error)
	// Wanted returns the slots to keep, and a channel that is closed when they change.
	Wanted() (SlotSet, <-chan struct{})
	// NewMark returns an object of the stored type with a name and nothing else. The informer's
	// event handlers recognize its delete.
	NewMark(name string) runtime.Object
}

// Part limits a Target to the objects of some slots.
type Part struct {
	SlotSelector
	// Owner is the kind of the controllers whose key counts for an object that they own. An object
	// without such a controller has no slot. Default: the key of the object itself.
	Owner schema.GroupVersionKind
}

// KeyOf returns the key that counts for an object. clusterScoped is about Owner.
func (p *Part) KeyOf(o metav1.Object, clusterScoped bool) (key types.NamespacedName, ok bool) {
	if p.Owner.Kind == "" {
		return object.Key(o), true
	}
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return key, false
	}
	return p.ownerKey(o.GetNamespace(), owner.APIVersion, owner.Kind, owner.Name, clusterScoped)
}

func (p *Part) ownerKey(namespace, apiVersion, kind, name string, clusterScoped bool) (key types.NamespacedName, ok bool) {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = ""
	}
	if group != p.Owner.Group || kind != p.Owner.Kind {
		return key, false
	}
	if clusterScoped {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}

// portion is a Part as one list and the watches after it see it. It is safe for concurrent use. A
// nil portion is everything.
type portion struct {
	*Part

	broken *Broken

	mu            sync.Mutex // guards the fields below
	clusterScoped bool       // the kind Owner
	phases        [256]phase
	dropped       string // version of the last event of a foreign slot
}

// newPortion returns a portion that keeps some slots.
func newPortion(p *Part, broken *Broken, slots *SlotSet) *portion {
	n := &portion{Part: p, broken: broken}
	for slot, in := range slots {
		if in {
			n.phases[slot] = kept
		}
	}
	return n
}

// resolve finds out whether the owners are namespaced.
func (p *portion) resolve(ctx context.Context, b Backend) error {
	if p == nil || p.Owner.Kind == "" {
		return nil
	}
	m, err := b.MappingWithin(ctx, p.Owner, askAgain)
	if err != nil {
		return fmt.Errorf("the kind of the owners: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clusterScoped = m.Scope.Name() == meta.RESTScopeNameRoot
	return nil
}

func (p *portion) rootOwner() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clusterScoped
}

// slotOf returns the slot of an object. ok is false if it has none.
func (p *portion) slotOf(o metav1.Object) (slot uint8, ok bool) {
	key, ok := p.KeyOf(o, p.rootOwner())
	if !ok {
		return 0, false
	}
	slot, err := p.Slot(key)
	if err != nil {
		p.broken.Add(o, err)
		return 0, false
	}
	return slot, true
}

func (p *portion) phaseOf(o metav1.Object) phase {
	slot, ok := p.slotOf(o)
	return p.phaseIn(slot, ok)
}

// phaseIn returns the phase of an object that has arrived. ok is false if it has no slot.
func (p *portion) phaseIn(slot uint8, ok bool) phase {
	if !ok {
		return foreign
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phases[slot]
}

// drops is phaseOf for an event. It records the version of an event that the caller drops: objects
// of a slot that joins later are listed at this version or later.
func (p *portion) drops(slot uint8, ok bool, version string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok && p.phases[slot] != foreign {
		return false
	}
	p.dropped = version
	return true
}

// skipped stands for an object that was dropped before it was decoded.
type skipped struct{ metav1.PartialObjectMetadata }

// skip returns an object for an event of a foreign object, or nil. If it is in doubt, the caller
// decodes the object.
func (p *portion) skip(f wire.Format, data []byte) *skipped {
	if p == nil {
		return nil
	}
	k, slot, has, known := p.read(f, data)
	if version := string(k.ResourceVersion); known && p.drops(slot, has, version) {
		o := &skipped{}
		o.Namespace, o.Name, o.ResourceVersion = string(k.Namespace), string(k.Name), version
		return o
	}
	return nil
}

// keepsBytes reports whether an item of a list must be decoded.
func (p *portion) keepsBytes(f wire.Format, data []byte) bool {
	if p == nil {
		return true
	}
	_, slot, has, known := p.read(f, data)
	return !known || p.phaseIn(slot, has) != foreign
}

// read returns an object's slot from its bytes. has is false if it has none, known if that is not
// certain.
func (p *portion) read(f wire.Format, data []byte) (k wire.Key, slot uint8, has, known bool) {
	k, known = wire.ReadKey(f, data, p.Owner.Kind != "")
	if !known {
		return k, 0, false, false
	}
	key := types.NamespacedName{Namespace: string(k.Namespace), Name: string(k.Name)}
	if c := k.Controller; p.Owner.Kind != "" {
		if key, has = p.ownerKey(key.Namespace, string(c.APIVersion), string(c.Kind), string(c.Name), p.rootOwner()); !has {
			return k, 0, false, true
		}
	}
	slot, err := p.Slot(key)
	return k, slot, err == nil, err == nil // the error is recorded with the decoded object
}

// keeps reports whether a decoded item of a list is kept.
func (p *portion) keeps(o runtime.Object) bool {
	if p == nil {
		return true
	}
	m, err := meta.Accessor(o)
	return err == nil && p.phaseOf(m) != foreign
}

// follow compares the portion with the wanted slots. Slots that are not wanted become foreign.
func (p *portion) follow(wanted *SlotSet) (gone, missing SlotSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for slot, want := range wanted {
		switch now := p.phases[slot]; {
		case want:
			missing[slot] = now == foreign
		case now != foreign:
			gone[slot] = true // one that joins may have objects that had another owner
			p.phases[slot] = foreign
		}
	}
	return gone, missing
}

// begin makes foreign slots join. It returns the version from which events of them are not dropped:
// the later one of at and the last dropped event.
func (p *portion) begin(slots *SlotSet, at string) (from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(foreign, joining, slots)
	if object.Before(at, p.dropped) {
		return p.dropped
	}
	return at
}

// end gives joining slots another phase.
func (p *portion) end(as phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := SlotSet{}
	for slot := range all {
		all[slot] = true
	}
	p.turn(joining, as, &all)
}

func (p *portion) turn(from, to phase, slots *SlotSet) {
	for slot, in := range slots {
		if in && p.phases[slot] == from {
			p.phases[slot] = to
		}
	}
}

func (p *portion) now() [256]phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phases
}

func (p *portion) mark(name, version string) object.Object {
	o, _ := p.NewMark(name).(object.Object) // it is of the stored type
	o.SetResourceVersion(version)
	return o
}
