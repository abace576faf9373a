// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// MaxHandedOver is how many writes a term hands over at most. An informer that shows a write shows
// all earlier ones of the same resource, so what is left out is hardly ever missed.
const MaxHandedOver = 100

// Handover is what a released term of leadership leaves to the next one.
type Handover struct {
	// Holder is who released the Lease, and Released when, by its own clock.
	Holder   string
	Released time.Time
	// Writes are the newest of the term and of those before it, one for each object, oldest first.
	// Each has the object, the Host, the UID, the highest version and the Effect: Stored, Gone, or
	// Accepted, which is gone or marked for deletion. Verb is update or delete, whatever it was.
	// Object is nil, or a PartialObjectMetadata with the labels. What was read from a Lease is
	// hashed: see [ledger.Write.Hashed].
	Writes []ledger.Write
	// Unknown is how many more writes there were that the next term cannot wait for: their effect is
	// not known, or the Lease had no room for them.
	Unknown int
}

// trail records what was written under a term: the newest step of each object. Its mutex may be
// taken while a ledger's is held, never the other way round.
type trail struct {
	mu      sync.Mutex // guards what follows
	of      map[object]*list.Element
	order   list.List // of *step, the newest first
	unknown int
}

// object identifies one object.
type object struct {
	group, resource, namespace, name string
	uid                              types.UID
}

func objectOf(w *ledger.Write) object {
	return object{w.Group, w.Resource, w.Namespace, w.Name, w.UID}
}

// place is where an informer may look.
type place struct{ group, resource, namespace string }

func (o *object) place() place { return place{o.group, o.resource, o.namespace} }

// step is what was done to an object last.
type step struct {
	object

	salt        ledger.Salt // if not empty, what identifies the object is hashed
	host        string
	version     string // the highest
	subresource string
	labels      map[string]string // at that version; nil: not known
	effect      ledger.Effect     // Stored, Gone, or Accepted: gone or marked
	inherited   bool              // it was not done under this term
}

func stepOf(e *list.Element) *step {
	s, _ := e.Value.(*step) // there is nothing else
	return s
}

// note records a write.
func (t *trail) note(w *ledger.Write) {
	if w.Effect == "" || w.Effect == ledger.Unchanged || !w.Stores() {
		return
	}
	effect := ledger.Stored
	switch {
	case w.Effect == ledger.Gone:
		effect = ledger.Gone
	case marks(w):
		effect = ledger.Accepted
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if effect == ledger.Stored && w.ResourceVersion == "" || w.Name == "" {
		t.unknown++
		return
	}
	of := objectOf(w)
	e := t.of[of]
	if e == nil {
		e = t.addLocked(&step{object: of})
	}
	t.order.MoveToFront(e)
	stepOf(e).follow(w, effect)
}

// addLocked adds an object. Now and then it drops all that would not be handed over.
func (t *trail) addLocked(s *step) *list.Element {
	if t.of == nil {
		t.of = map[object]*list.Element{}
	}
	if len(t.of) >= 4*MaxHandedOver {
		kept := t.newestLocked()
		clear(t.of)
		t.order.Init()
		for _, e := range kept {
			t.of[stepOf(e).object] = t.order.PushBack(e.Value)
		}
	}
	t.of[s.object] = t.order.PushFront(s)
	return t.of[s.object]
}

// newestLocked returns what is handed over, the newest first: the newest of each resource and
// namespace, and the newest of the others.
func (t *trail) newestLocked() (kept []*list.Element) {
	first := map[place]*list.Element{}
	for e := t.order.Front(); e != nil; e = e.Next() {
		if at := stepOf(e).place(); first[at] == nil {
			first[at] = e
		}
	}
	others := MaxHandedOver - len(first)
	for e := t.order.Front(); e != nil && len(kept) < MaxHandedOver; e = e.Next() {
		switch {
		case first[stepOf(e).place()] == e:
		case others > 0:
			others--
		default:
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// follow records the next write of the object. A deletion is final. The highest version counts, so
// that an object whose creation is not shown yet is not taken for one whose deletion is.
func (s *step) follow(w *ledger.Write, effect ledger.Effect) {
	s.salt, s.host, s.inherited = w.Salt, w.Host, false
	if newer(s.version, w.ResourceVersion) {
		s.version, s.subresource, s.labels = w.ResourceVersion, w.Subresource, labelsOf(w)
	}
	if s.effect != ledger.Gone {
		s.effect = effect
	}
}

// toWrite returns what was done to the object.
func (s *step) toWrite() ledger.Write {
	o := s.object
	w := ledger.Write{
		Request: ledger.Request{
			Verb: "update", Group: o.group, Resource: o.resource, Subresource: s.subresource,
			Namespace: o.namespace, Name: o.name, Host: s.host,
		},
		UID: o.uid, ResourceVersion: s.version, Effect: s.effect, Salt: s.salt,
	}
	switch s.effect {
	case ledger.Gone:
		w.Verb, w.Subresource = "delete", ""
	case ledger.Accepted:
		w.Verb, w.Subresource, w.Unknown = "delete", "", "whether it is gone or only marked"
	}
	if s.labels != nil {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: o.name, Labels: s.labels,
		}}
	}
	return w
}

// marks reports whether the object may be gone or marked for deletion, and nothing else is known.
func marks(w *ledger.Write) bool {
	deletes := w.Verb == "deletecollection" || w.Verb == "delete" && w.Subresource == "" || w.Subresource == "eviction"
	return deletes && w.Effect == ledger.Accepted
}

// newer reports whether version b follows a; in doubt it does.
func newer(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// labelsOf returns the labels of the object, nil if they are not known.
func labelsOf(w *ledger.Write) map[string]string {
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

// withoutRenewed leaves out the hashed writes, which are inherited, of objects that this term has
// written again. A deletion is final and stays.
func withoutRenewed(writes []ledger.Write) (kept []ledger.Write) {
	again := map[ledger.Salt]map[object]bool{}
	for i := range writes {
		w := &writes[i]
		if w.Salt != "" && again[w.Salt] == nil {
			again[w.Salt] = map[object]bool{}
			for j := range writes {
				if writes[j].Salt == "" {
					h := writes[j].Hashed(w.Salt)
					again[w.Salt][objectOf(&h)] = true
				}
			}
		}
		if w.Salt == "" || w.Effect == ledger.Gone || !again[w.Salt][objectOf(w)] {
			kept = append(kept, *w)
		}
	}
	return kept
}
