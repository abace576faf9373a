// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// MaxHandedOver limits the writes that a term hands over. Older ones rarely matter: an informer
// that shows a write shows all earlier ones of that resource.
const MaxHandedOver = 100

// Handover describes the last writes of a released term for the next one.
type Handover struct {
	// Holder released the Lease at Released, by its own clock.
	Holder   string
	Released time.Time
	// Writes are the newest writes of this and earlier terms, one per object, oldest first. Each
	// has the object, the Host, the UID, the highest version and the Effect: Stored, Gone, or
	// Accepted (gone or marked for deletion). Verb is update or delete. Object is nil, or a
	// PartialObjectMetadata with the labels. Writes from a Lease are hashed: see
	// [ledger.Write.Hashed].
	Writes []ledger.Write
	// Unknown counts further writes, which the next term cannot wait for: their effect is unknown,
	// or the Lease had no room for them.
	Unknown int
}

// trail records each object's newest write. The term's mutex guards it.
type trail struct {
	steps   map[object]*step
	noted   uint64 // the number of recorded writes
	unknown int
}

type object struct {
	group, resource, namespace, name string
	uid                              types.UID
}

func objectOf(w *ledger.Write) object {
	return object{w.Group, w.Resource, w.Namespace, w.Name, w.UID}
}

type step struct {
	object

	number      uint64      // the order of the writes
	salt        ledger.Salt // if not empty, the names and labels are hashed
	host        string
	version     string // the highest
	subresource string
	labels      map[string]string // at that version; nil if unknown
	effect      ledger.Effect     // Stored, Gone, or Accepted: gone or marked
	inherited   bool              // from the terms before
}

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
	if effect == ledger.Stored && w.ResourceVersion == "" || w.Name == "" {
		t.unknown++
		return
	}
	of := objectOf(w)
	s := t.steps[of]
	if s == nil {
		s = &step{object: of}
		t.add(s)
	}
	t.noted++
	s.number = t.noted
	s.follow(w, effect)
}

func (t *trail) add(s *step) {
	if t.steps == nil {
		t.steps = map[object]*step{}
	}
	if len(t.steps) >= 4*MaxHandedOver {
		kept := t.newest()
		clear(t.steps)
		for _, s := range kept {
			t.steps[s.object] = s
		}
	}
	t.steps[s.object] = s
}

// newest returns the steps to hand over, newest first. The newest of each API server, resource and
// namespace, which may have an informer of its own, come before others.
func (t *trail) newest() []*step {
	all := slices.SortedFunc(maps.Values(t.steps), func(a, b *step) int { return cmp.Compare(b.number, a.number) })
	type place struct{ host, group, resource, namespace string }
	first := map[place]*step{}
	for _, s := range slices.Backward(all) {
		first[place{s.host, s.group, s.resource, s.namespace}] = s
	}
	others := MaxHandedOver - len(first)
	kept := slices.DeleteFunc(all, func(s *step) bool {
		if first[place{s.host, s.group, s.resource, s.namespace}] == s {
			return false
		}
		others--
		return others < 0
	})
	return kept[:min(len(kept), MaxHandedOver)]
}

// follow records the next write of the object. A deletion is final. Without the highest version, an
// object that a cache does not show yet would look deleted.
func (s *step) follow(w *ledger.Write, effect ledger.Effect) {
	s.salt, s.host, s.inherited = w.Salt, w.Host, false
	if newer(s.version, w.ResourceVersion) {
		s.version, s.subresource, s.labels = w.ResourceVersion, w.Subresource, labelsOf(w)
	}
	if s.effect != ledger.Gone {
		s.effect = effect
	}
}

func (s *step) toWrite() ledger.Write {
	o := s.object
	w := ledger.Write{
		Request: ledger.Request{
			Verb: "update", Group: o.group, Resource: o.resource, Subresource: s.subresource,
			Namespace: o.namespace, Name: o.name, Host: s.host,
		},
		UID: o.uid, ResourceVersion: s.version, Effect: s.effect, Salt: s.salt,
	}
	if s.effect != ledger.Stored {
		w.Verb, w.Subresource = "delete", ""
	}
	if s.effect == ledger.Accepted {
		w.Unknown = "whether it is gone or only marked"
	}
	if s.labels != nil {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: o.name, Labels: s.labels,
		}}
	}
	return w
}

func marks(w *ledger.Write) bool {
	deletes := w.Verb == "deletecollection" || w.Verb == "delete" && w.Subresource == "" || w.Subresource == "eviction"
	return deletes && w.Effect == ledger.Accepted
}

func newer(a, b string) bool {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
}

func labelsOf(w *ledger.Write) map[string]string {
	o, ok := w.Object.(metav1.Object)
	if !ok {
		return nil
	}
	if o.GetLabels() == nil {
		return map[string]string{}
	}
	return o.GetLabels()
}

// withoutRenewed drops inherited writes of objects that this term has written, but not deletions,
// which are final.
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
