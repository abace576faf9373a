// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// WrittenAnnotation is the annotation of a released Lease with the last writes of its term, as JSON
// of at most 16 KiB. Older writes are only counted. The next elector of this module removes it.
//
// All readers of the Lease can read it. Resources, versions, effects, the time and the number of
// objects are clear text. Namespaces, names, UIDs and labels are hashes ([ledger.Write.Hashed]).
// The annotation also has the salts, so a reader can confirm a guessed name.
const WrittenAnnotation = "setpoint.dev/written-hashed"

// clearAnnotation is from earlier versions, with names in clear text. It is only removed.
const clearAnnotation = "setpoint.dev/written"

// maxStamp is in bytes.
const maxStamp = 16 << 10

type stamp struct {
	Holder string `json:"holder"`
	// Released is the renewTime of the release. The Lease has a later one if it had another holder
	// since, such as client-go's elector, which keeps the annotation.
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
	Host        string             `json:"h,omitempty"` // empty: as the Lease
}

// stamper reads and writes the annotation. host is the API server of the Lease, as in a ledger.
type stamper struct{ identity, host string }

func unstamped(l *coordinationv1.Lease) *coordinationv1.Lease {
	delete(l.Annotations, WrittenAnnotation)
	delete(l.Annotations, clearAnnotation)
	return l
}

// stamped counts the oldest writes that do not fit as unknown: they are the most likely to be in
// every cache.
func (m stamper) stamped(l *coordinationv1.Lease, writes []ledger.Write, unknown int, at time.Time) *coordinationv1.Lease {
	l = unstamped(l)
	if len(writes) == 0 && unknown == 0 {
		return l
	}
	salt := ledger.NewSalt()
	for {
		text, err := json.Marshal(m.stampOf(writes, salt, unknown, at))
		switch {
		case err != nil:
			return l
		case len(text) <= maxStamp:
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, WrittenAnnotation, string(text))
			return l
		case len(writes) == 0:
			return l
		}
		over := max(1, len(writes)*(len(text)-maxStamp)/len(text))
		writes, unknown = writes[over:], unknown+over
	}
}

func (m stamper) stampOf(writes []ledger.Write, salt ledger.Salt, unknown int, at time.Time) *stamp {
	s := &stamp{Holder: m.identity, Released: at.UTC(), Unknown: unknown}
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
		if w.Host != m.host {
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

func (m stamper) inheritance(l *coordinationv1.Lease) (*term.Handover, error) {
	text := l.Annotations[WrittenAnnotation]
	if text == "" || !released(l) || l.Spec.RenewTime == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	if len(text) > maxStamp {
		return nil, fmt.Errorf("it has %d bytes; the limit is %d", len(text), maxStamp)
	}
	var s stamp
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	if !s.Released.Equal(l.Spec.RenewTime.Time) {
		return nil, nil //nolint:nilnil // of an earlier release
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
		h.Writes = append(h.Writes, m.writeOf(w, s.Resources[w.Resource], s.Salts[w.Salt]))
	}
	return h, nil
}

func (m stamper) writeOf(s *stampedWrite, resource string, salt ledger.Salt) ledger.Write {
	r := schema.ParseGroupResource(resource)
	w := ledger.Write{UID: s.UID, ResourceVersion: s.Version, Effect: ledger.Stored, Salt: salt}
	w.Request = ledger.Request{
		Verb: "update", Group: r.Group, Resource: r.Resource, Namespace: s.Namespace, Name: s.Name, Subresource: s.Subresource, Host: m.host,
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
