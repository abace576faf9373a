// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// Handover describes the writes of a released term for the next one, and what it has read.
type Handover struct {
	// Holder released the Lease at Released, by its own clock.
	Holder   string
	Released time.Time
	// Written has one entry for each API server and resource.
	Written []Written
	// Unknown counts writes of an unknown resource. A handover that cannot be read counts as one.
	Unknown int
}

// Written describes the writes and the reads of one resource.
type Written struct {
	// Host is the API server, as in a [ledger.Request].
	Host     string
	Resource schema.GroupResource
	// ResourceVersion is the newest version that a write made, or that the work has read, or empty.
	// A cache that has passed it shows both, but for the deletions: their answers have no version.
	ResourceVersion string
	// Deleted has the newest deletions, oldest first.
	Deleted []Deletion
	// Unknown counts the latest writes without a version: their answer was lost or incomplete.
	Unknown int
	// Read reports that nothing was written: without room, the entry may be left out.
	Read bool
}

// Deletion describes a deleted object.
type Deletion struct {
	UID types.UID
	// Marked reports that the object may still exist, with a deletion timestamp.
	Marked bool
}

// Add adds the writes of another handover.
func (h *Handover) Add(o *Handover) {
	h.Unknown += o.Unknown
	for i := range o.Written {
		w := &o.Written[i]
		n := slices.IndexFunc(h.Written, func(o Written) bool { return o.Host == w.Host && o.Resource == w.Resource })
		if n < 0 {
			n, h.Written = len(h.Written), append(h.Written, Written{Host: w.Host, Resource: w.Resource, Read: true})
		}
		of := &h.Written[n]
		of.ResourceVersion = later(of.ResourceVersion, w.ResourceVersion)
		of.Deleted = append(of.Deleted, w.Deleted...)
		of.Unknown += w.Unknown
		of.Read = of.Read && w.Read
	}
}

func later(a, b string) string {
	if cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0 {
		return b
	}
	return a
}

const (
	// maxDeleted limits the deletions of a resource. Older ones rarely matter: an informer that
	// shows a deletion shows all earlier ones.
	maxDeleted = 100
	// recent is how long deletions and unknown writes are handed over. A mute watch is replaced
	// within that time.
	recent = 3 * time.Minute
)

// trail records a term's own writes. The term's mutex guards it.
type trail map[resource]*writes

type resource struct{ host, group, name string }

type writes struct {
	version string
	deleted []deletion // at most maxDeleted
	unknown []time.Time
}

type deletion struct {
	Deletion

	at time.Time
}

func (t trail) note(w *ledger.Write) {
	if w.Effect == "" || w.Effect == ledger.Unchanged || !w.Stores() {
		return
	}
	r := resource{w.Host, w.Group, w.Resource}
	of := t[r]
	if of == nil {
		of = &writes{}
		t[r] = of
	}
	of.version = later(of.version, w.ResourceVersion)
	ends := w.Effect == ledger.Gone || w.Effect == ledger.Accepted && w.Deletes()
	switch {
	case ends && w.UID != "":
		of.delete(deletion{Deletion{w.UID, w.Effect != ledger.Gone}, time.Now()})
	case ends, w.ResourceVersion == "":
		of.unknown = last(append(of.unknown, time.Now()))
	}
}

// delete records a deletion. It may follow another one of the object, which was only marked.
func (o *writes) delete(d deletion) {
	n := slices.IndexFunc(o.deleted, func(earlier deletion) bool { return earlier.UID == d.UID })
	if n >= 0 {
		d.Marked = d.Marked && o.deleted[n].Marked
		o.deleted = slices.Delete(o.deleted, n, n+1)
	}
	o.deleted = last(append(o.deleted, d))
}

func last[E any](all []E) []E {
	return slices.Delete(all, 0, max(0, len(all)-maxDeleted))
}

// now returns what a release hands over.
func (t trail) now() *Handover {
	h, now := &Handover{}, time.Now()
	for r, of := range t {
		w := Written{Host: r.host, Resource: schema.GroupResource{Group: r.group, Resource: r.name}, ResourceVersion: of.version}
		for _, d := range of.deleted {
			if now.Sub(d.at) <= recent {
				w.Deleted = append(w.Deleted, d.Deletion)
			}
		}
		for _, at := range of.unknown {
			if now.Sub(at) <= recent {
				w.Unknown++
			}
		}
		if w.ResourceVersion != "" || w.Deleted != nil || w.Unknown > 0 {
			h.Written = append(h.Written, w)
		}
	}
	return h
}
