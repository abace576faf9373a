// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package stamp encodes a term's last writes for the next owner, as JSON of a limited size.
// Namespaces, names, UIDs and labels are hashes: see [ledger.Write.Hashed].
package stamp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// Codec encodes and decodes handovers. It is safe for concurrent use.
type Codec struct {
	// Identity is the Holder of the encoded handovers.
	Identity string
	// Host is the API server that stores the text, as in a ledger. It is not repeated in writes.
	Host string
	// Limit is the size of a text, in bytes.
	Limit int
}

type stamp struct {
	Holder    string         `json:"holder"`
	Released  time.Time      `json:"released"`
	Unknown   int            `json:"unknown,omitempty"`
	Resources []string       `json:"resources,omitempty"` // with the group: deployments.apps
	Salts     []ledger.Salt  `json:"salts,omitempty"`     // also of inherited writes
	Writes    []stampedWrite `json:"writes,omitempty"`
}

type stampedWrite struct {
	Resource    int                `json:"r,omitempty"`  // index in Resources
	Salt        int                `json:"s,omitempty"`  // index in Salts
	Namespace   string             `json:"ns,omitempty"` // a hash, like name, UID and labels
	Name        string             `json:"n"`
	UID         types.UID          `json:"u,omitempty"`
	Version     string             `json:"v,omitempty"`
	Subresource string             `json:"sub,omitempty"`
	Effect      string             `json:"e,omitempty"` // gone, accepted; empty: stored
	Labels      *map[string]string `json:"l,omitempty"` // nil if unknown
	Host        string             `json:"h,omitempty"` // empty: as the text
}

// Encode returns the text of a release at a time: writes, oldest first, and the number of unknown
// writes, as in term.Handover. Writes that do not fit count as unknown. The newest write of each
// informer stays longest: a cache that shows it shows all earlier ones. Encode returns "" if there
// is nothing to tell, or no room.
func (c Codec) Encode(writes []ledger.Write, unknown int, at time.Time) string {
	if len(writes) == 0 && unknown == 0 {
		return ""
	}
	salt, order := ledger.NewSalt(), leastFirst(writes)
	for dropped := 0; ; {
		kept := without(writes, order[:dropped])
		text, err := json.Marshal(c.stampOf(kept, salt, unknown+dropped, at))
		switch {
		case err != nil:
			return ""
		case len(text) <= c.Limit:
			return string(text)
		case len(kept) == 0:
			return ""
		}
		dropped += max(1, len(kept)*(len(text)-c.Limit)/len(text))
	}
}

// leastFirst returns the indices of writes in the order in which they are dropped: oldest first,
// but the newest of each informer last.
func leastFirst(writes []ledger.Write) []int {
	order, newest := make([]int, len(writes)), map[string]int{}
	for i := range writes {
		order[i], newest[informerOf(&writes[i])] = i, i
	}
	last := make([]int, len(writes))
	for _, i := range newest {
		last[i] = 1
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(last[a], last[b]) })
	return order
}

// informerOf describes the narrowest informer that shows a write.
func informerOf(w *ledger.Write) string {
	labels := "unknown"
	if o, ok := w.Object.(*metav1.PartialObjectMetadata); ok {
		labels = fmt.Sprint(o.Labels) // sorted
	}
	return fmt.Sprintf("%q", []string{w.Host, w.Group, w.Resource, string(w.Salt), w.Namespace, labels})
}

func without(writes []ledger.Write, indices []int) (kept []ledger.Write) {
	for i := range writes {
		if !slices.Contains(indices, i) {
			kept = append(kept, writes[i])
		}
	}
	return kept
}

func (c Codec) stampOf(writes []ledger.Write, salt ledger.Salt, unknown int, at time.Time) *stamp {
	s := &stamp{Holder: c.Identity, Released: at.UTC(), Unknown: unknown}
	for i := range writes {
		w := writes[i].Hashed(salt)
		of := stampedWrite{
			Resource:  placeIn(&s.Resources, schema.GroupResource{Group: w.Group, Resource: w.Resource}.String()),
			Salt:      placeIn(&s.Salts, w.Salt),
			Namespace: w.Namespace, Name: w.Name, UID: w.UID, Version: w.ResourceVersion, Subresource: w.Subresource,
		}
		if w.Effect != ledger.Stored {
			of.Effect = string(w.Effect)
		}
		if o, ok := w.Object.(*metav1.PartialObjectMetadata); ok {
			of.Labels = &o.Labels
		}
		if w.Host != c.Host {
			of.Host = w.Host
		}
		s.Writes = append(s.Writes, of)
	}
	return s
}

func placeIn[E comparable](list *[]E, e E) int {
	i := slices.Index(*list, e)
	if i < 0 {
		i, *list = len(*list), append(*list, e)
	}
	return i
}

// Decode returns the handover of a text. The error describes what is wrong with the text.
func (c Codec) Decode(text string) (*term.Handover, error) {
	if len(text) > c.Limit {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(text), c.Limit)
	}
	var s stamp
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	if len(s.Writes) > term.MaxHandedOver {
		return nil, fmt.Errorf("it has %d writes; the limit is %d", len(s.Writes), term.MaxHandedOver)
	}
	h := &term.Handover{Holder: s.Holder, Released: s.Released, Unknown: s.Unknown}
	for i := range s.Writes {
		w := &s.Writes[i]
		if w.Resource < 0 || w.Resource >= len(s.Resources) || w.Salt < 0 || w.Salt >= len(s.Salts) || s.Salts[w.Salt] == "" {
			return nil, fmt.Errorf("write %d has no resource or no salt", i)
		}
		h.Writes = append(h.Writes, c.writeOf(w, s.Resources[w.Resource], s.Salts[w.Salt]))
	}
	return h, nil
}

func (c Codec) writeOf(s *stampedWrite, resource string, salt ledger.Salt) ledger.Write {
	r := schema.ParseGroupResource(resource)
	w := ledger.Write{UID: s.UID, ResourceVersion: s.Version, Effect: ledger.Stored, Salt: salt}
	w.Request = ledger.Request{
		Verb: "update", Group: r.Group, Resource: r.Resource, Namespace: s.Namespace, Name: s.Name, Subresource: s.Subresource, Host: c.Host,
	}
	if s.Host != "" {
		w.Host = s.Host
	}
	if s.Effect != "" {
		w.Verb, w.Effect = "delete", ledger.Effect(s.Effect)
	}
	if w.Effect == ledger.Accepted {
		w.Unknown = "whether it is gone or only marked"
	}
	if s.Labels != nil {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: maps.Clone(*s.Labels)}}
	}
	return w
}
