// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MostHandedOver is how many writes a term hands over at most. An informer that shows a write shows all that were made before it
// to the same resource, as far as it keeps them, so what is left out is hardly ever missed.
const MostHandedOver = 100

// handedOn is for how long a term hands on, when it is released, what it has inherited itself: by then it is shown everywhere, or never
// will be, and then nobody is to wait for it at each hand-over.
const handedOn = time.Minute

// Handover is what a term of leadership that was released leaves to the next one.
type Handover struct {
	// Holder is who released the Lease, and Released when, by its own clock.
	Holder   string
	Released time.Time
	// Writes are the newest of the term and of those before it, one for each object, oldest first. Of each the object is set, the Host,
	// the UID, the highest version and the Effect: Stored, Gone, or Accepted, which is gone or marked for deletion. Verb is update or
	// delete, whatever it was. Object is nil, or a PartialObjectMetadata with the labels. What was
	// read from a Lease is hashed: see [Write.Hashed].
	Writes []Write
	// Unknown is how many more writes there were that the next term cannot wait for: their effect is
	// not known, or the Lease had no room for them.
	Unknown int
}

// Inherit says what the term before has left. Whoever makes the term calls it, once and before anybody else has it.
func (t *Term) Inherit(h Handover) {
	t.inherited = &h
	for i := range h.Writes {
		t.trail.note(&h.Writes[i])
	}
	for e := t.trail.order.Front(); e != nil; e = e.Next() {
		printOf(e).inherited = true
	}
}

// Inherited returns what the term before has left, nil if it was not released, or not by an elector of this module: it crashed,
// or there was none. L9 stands on it, see package controller. It is shared: do not change it.
func (t *Term) Inherited() *Handover { return t.inherited }

// Written returns what the next term has to know of what was written under this one and, in its first minute, under those before it. Requests count that carry
// a ledger and this term, once their answer was read.
func (t *Term) Written() (writes []Write, unknown int) {
	r := &t.trail
	r.mu.Lock()
	defer r.mu.Unlock()
	late := time.Since(t.made) > handedOn
	for _, e := range r.newestLocked() {
		if late && printOf(e).inherited {
			continue
		}
		writes = append(writes, printOf(e).toWrite())
	}
	writes = withoutRenewed(writes)
	slices.Reverse(writes)
	return writes, r.unknown
}

// trail is what was written under a term: for each object the newest.
type trail struct {
	mu      sync.Mutex // guards what follows
	of      map[object]*list.Element
	order   list.List // of *print, the newest first
	unknown int
}

// object is one object.
type object struct {
	group, resource, namespace, name string
	uid                              types.UID
}

func objectOf(w *Write) object { return object{w.Group, w.Resource, w.Namespace, w.Name, w.UID} }

// place is where an informer may look.
type place struct{ group, resource, namespace string }

func (o *object) place() place { return place{o.group, o.resource, o.namespace} }

// print is what was done to an object last.
type print struct {
	object

	salt        Salt // if not empty, what identifies the object is hashed
	host        string
	version     string // the highest
	subresource string
	labels      map[string]string // at that version; nil: not known
	effect      Effect            // Stored, Gone, or Accepted: gone or marked
	inherited   bool              // it was not done under this term
}

// note takes a write down.
func (t *trail) note(w *Write) {
	if w.Effect == Unchanged || !w.fenced() {
		return
	}
	effect := Stored
	switch {
	case w.Effect == Gone:
		effect = Gone
	case w.marks():
		effect = Accepted
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if effect == Stored && w.ResourceVersion == "" || w.Name == "" {
		t.unknown++
		return
	}
	of := objectOf(w)
	e := t.of[of]
	if e == nil {
		e = t.addLocked(&print{object: of})
	}
	t.order.MoveToFront(e)
	printOf(e).follow(w, effect)
}

func printOf(e *list.Element) *print {
	p, _ := e.Value.(*print) // there is nothing else
	return p
}

// addLocked adds an object. Now and then all are forgotten that would not be handed over.
func (t *trail) addLocked(p *print) *list.Element {
	if t.of == nil {
		t.of = map[object]*list.Element{}
	}
	if len(t.of) >= 4*MostHandedOver {
		kept := t.newestLocked()
		clear(t.of)
		t.order.Init()
		for _, e := range kept {
			t.of[printOf(e).object] = t.order.PushBack(e.Value)
		}
	}
	t.of[p.object] = t.order.PushFront(p)
	return t.of[p.object]
}

// newestLocked returns those that are handed over, the newest first: the newest of each resource and namespace, and of the others the
// newest.
func (t *trail) newestLocked() (kept []*list.Element) {
	first := map[place]*list.Element{}
	for e := t.order.Front(); e != nil; e = e.Next() {
		if at := printOf(e).place(); first[at] == nil {
			first[at] = e
		}
	}
	others := MostHandedOver - len(first)
	for e := t.order.Front(); e != nil && len(kept) < MostHandedOver; e = e.Next() {
		switch {
		case first[printOf(e).place()] == e:
		case others > 0:
			others--
		default:
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// follow takes down what was done next. What is gone stays so; and the version is the highest that was seen, so that an object whose
// creation is not shown yet is not taken for one whose deletion is.
func (p *print) follow(w *Write, effect Effect) {
	p.salt, p.host, p.inherited = w.Salt, w.Host, false
	if newer(p.version, w.ResourceVersion) {
		p.version, p.subresource, p.labels = w.ResourceVersion, w.Subresource, labelsOf(w)
	}
	if p.effect != Gone {
		p.effect = effect
	}
}

// toWrite says what was done to the object.
func (p *print) toWrite() Write {
	o := p.object
	w := Write{
		Request: Request{Verb: "update", Group: o.group, Resource: o.resource, Namespace: o.namespace, Name: o.name, Subresource: p.subresource, Host: p.host},
		UID:     o.uid, ResourceVersion: p.version, Effect: p.effect, Salt: p.salt,
	}
	switch p.effect {
	case Gone:
		w.Verb, w.Subresource = "delete", ""
	case Accepted:
		w.Verb, w.Subresource, w.Unknown = "delete", "", "whether it is gone or only marked"
	}
	if p.labels != nil {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, Labels: p.labels}}
	}
	return w
}

// marks says whether what was written may be gone or marked for deletion, and nothing else is known.
func (w *Write) marks() bool {
	return w.Effect == Accepted && (w.Verb == "deletecollection" || w.Verb == "delete" && w.Subresource == "" || w.Subresource == "eviction")
}

// leaveTrail has the term know what was written. The ledger's mutex is held around the trail's, never the other way round.
func (e *exchange) leaveTrail() {
	if e.term == nil || e.answer == nil {
		return
	}
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	if e.record.write {
		e.term.trail.note(&e.record.Write)
	}
	for i := range e.record.items {
		e.term.trail.note(&e.record.items[i])
	}
}

// newer says whether version b follows a; in doubt it does.
func newer(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// labelsOf returns what selectors of labels look at, nil if it is not known.
func labelsOf(w *Write) map[string]string {
	if w.Object == nil {
		return nil
	}
	o, err := meta.Accessor(w.Object)
	if err != nil {
		return nil
	}
	if o.GetLabels() == nil {
		return map[string]string{}
	}
	return o.GetLabels()
}
