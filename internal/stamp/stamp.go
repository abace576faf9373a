// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package stamp encodes what a term wrote for the next owner, as JSON of a limited size:
//
//	{
//	  "holder": "operator-0",
//	  "released": "2026-11-23T12:00:00.123456Z",
//	  "unknown": 3,
//	  "written": [
//	    {"resource": "deployments.apps", "version": "1042"},
//	    {"resource": "pods", "version": "1043", "gone": ["3c2f…"], "unknown": 1}
//	  ]
//	}
//
// The text has no namespaces, names or labels. An entry may also have "marked", UIDs of objects
// that may still exist with a deletion timestamp, and "host", if that is not the API server that
// stores the text.
//
// Versions of this module with another format read holder, released and unknown, and report the
// number. So unknown counts all entries. "lost" counts writes of an unknown resource.
package stamp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/fence"
)

// Codec encodes and decodes handovers. It is safe for concurrent use.
type Codec struct {
	// Identity is the Holder of the encoded handovers.
	Identity string
	// Host is the API server that stores the text, as in a ledger. It is not repeated in entries.
	Host string
	// Limit is the size of a text, in bytes.
	Limit int
}

type text struct {
	Holder   string    `json:"holder"`
	Released time.Time `json:"released"`
	Unknown  int       `json:"unknown,omitempty"`
	Lost     int       `json:"lost,omitempty"`
	Written  []entry   `json:"written"` // nil: another format
}

type entry struct {
	Resource string      `json:"resource"` // with the group: deployments.apps
	Version  string      `json:"version,omitempty"`
	Gone     []types.UID `json:"gone,omitempty"`
	Marked   []types.UID `json:"marked,omitempty"`
	Unknown  int         `json:"unknown,omitempty"`
	Host     string      `json:"host,omitempty"`
}

// Encode returns the text of a release at a time. Without room, it leaves out what was only read.
// Then older deletions count as unknown writes of their resource, and as the last resort each
// resource as an unknown write. Encode returns "" if there is nothing to tell, or no room at all.
func (c Codec) Encode(h *fence.Handover, at time.Time) string {
	if len(h.Written) == 0 && h.Unknown == 0 {
		return ""
	}
	if s := c.encode(h, h.Written, at, len(h.Written)*1000); s != "" {
		return s
	}
	written := slices.DeleteFunc(slices.Clone(h.Written), func(w fence.Written) bool { return w.Read })
	if len(written) == 0 && h.Unknown == 0 {
		return ""
	}
	for _, deletions := range []int{len(written) * 1000, 100, 30, 10, 0} {
		if s := c.encode(h, written, at, deletions); s != "" {
			return s
		}
	}
	t := text{Holder: c.Identity, Released: at.UTC(), Unknown: len(written) + h.Unknown}
	t.Written, t.Lost = []entry{}, t.Unknown
	return c.fitting(&t)
}

func (c Codec) encode(h *fence.Handover, written []fence.Written, at time.Time, deletions int) string {
	t := text{Holder: c.Identity, Released: at.UTC(), Unknown: len(written) + h.Unknown, Lost: h.Unknown, Written: make([]entry, 0, len(written))}
	for i := range written {
		t.Written = append(t.Written, c.entryOf(&written[i], deletions))
	}
	return c.fitting(&t)
}

func (c Codec) fitting(t *text) string {
	s, err := json.Marshal(t)
	if err != nil || len(s) > c.Limit {
		return ""
	}
	return string(s)
}

// entryOf returns an entry with the newest deletions.
func (c Codec) entryOf(w *fence.Written, deletions int) entry {
	e := entry{Resource: w.Resource.String(), Version: w.ResourceVersion, Unknown: w.Unknown}
	if w.Host != c.Host {
		e.Host = w.Host
	}
	left := max(0, len(w.Deleted)-deletions)
	e.Unknown += left
	for _, d := range w.Deleted[left:] {
		if d.Marked {
			e.Marked = append(e.Marked, d.UID)
		} else {
			e.Gone = append(e.Gone, d.UID)
		}
	}
	return e
}

// Decode returns the handover of a text. If it cannot be read, the handover is one unknown write,
// and the error describes what is wrong.
func (c Codec) Decode(s string) (*fence.Handover, error) {
	if len(s) > c.Limit {
		return &fence.Handover{Unknown: 1}, fmt.Errorf("it has %d bytes; the limit is %d", len(s), c.Limit)
	}
	var t text
	err := json.Unmarshal([]byte(s), &t)
	h := &fence.Handover{Holder: t.Holder, Released: t.Released, Unknown: t.Lost}
	if err == nil && t.Written == nil {
		err = errors.New("it has the format of another version")
	}
	if err != nil {
		h.Unknown = max(1, t.Unknown)
		return h, err
	}
	for _, e := range t.Written {
		w := fence.Written{Host: cmp.Or(e.Host, c.Host), Resource: schema.ParseGroupResource(e.Resource), ResourceVersion: e.Version, Unknown: e.Unknown}
		for _, uid := range e.Gone {
			w.Deleted = append(w.Deleted, fence.Deletion{UID: uid})
		}
		for _, uid := range e.Marked {
			w.Deleted = append(w.Deleted, fence.Deletion{UID: uid, Marked: true})
		}
		h.Written = append(h.Written, w)
	}
	return h, nil
}
