// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
)

// WrittenAnnotation is what a Lease that was released says of the last writes that were made under it, as JSON, for whoever takes it
// next (L9). It is gone when an elector of this module holds the Lease.
const WrittenAnnotation = "setpoint.dev/written"

// maxStamp is how much of it is written, and read, at most. All annotations of an object may have 256 KiB.
const maxStamp = 64 << 10

// stamp is the annotation.
type stamp struct {
	Holder string `json:"holder"`
	// Released is the Lease's renewTime, as the release has written it: an annotation that survives another holder, as with
	// client-go's elector, has another one.
	Released time.Time      `json:"released"`
	Unknown  int            `json:"unknown,omitempty"`
	Writes   []stampedWrite `json:"writes,omitempty"`
}

type stampedWrite struct {
	Resource    string             `json:"resource"` // with the group, as deployments.apps
	Namespace   string             `json:"namespace,omitempty"`
	Name        string             `json:"name"`
	UID         types.UID          `json:"uid,omitempty"`
	Version     string             `json:"version,omitempty"`
	Subresource string             `json:"subresource,omitempty"`
	Effect      string             `json:"effect,omitempty"` // gone, or accepted: gone or marked; empty: stored
	Labels      *map[string]string `json:"labels,omitempty"` // nil: not known
	Host        string             `json:"host,omitempty"`   // empty: that of the Lease
}

// stamper reads and writes it, for an identity, and for the API server of the Lease, as a ledger calls it.
type stamper struct{ identity, host string }

// stamped writes what was written under a term into a Lease that is being released.
func (m stamper) stamped(l *coordinationv1.Lease, writes []client.Write, unknown int, at time.Time) *coordinationv1.Lease {
	delete(l.Annotations, WrittenAnnotation)
	if len(writes) == 0 && unknown == 0 {
		return l
	}
	s := stamp{Holder: m.identity, Released: at.UTC(), Unknown: unknown}
	for i := range writes {
		s.Writes = append(s.Writes, m.stampOf(&writes[i]))
	}
	text, err := json.Marshal(s)
	for err == nil && len(text) > maxStamp && len(s.Writes) > 0 { // the oldest are the least likely to be missed
		s.Writes = s.Writes[(len(s.Writes)+1)/2:]
		text, err = json.Marshal(s)
	}
	if err == nil {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, WrittenAnnotation, string(text))
	}
	return l
}

func (m stamper) stampOf(w *client.Write) stampedWrite {
	s := stampedWrite{
		Resource:  schema.GroupResource{Group: w.Group, Resource: w.Resource}.String(),
		Namespace: w.Namespace, Name: w.Name, UID: w.UID, Version: w.ResourceVersion, Subresource: w.Subresource,
	}
	if w.Effect != client.Stored {
		s.Effect = string(w.Effect)
	}
	if o, ok := w.Object.(*metav1.PartialObjectMetadata); ok {
		s.Labels = &o.Labels
	}
	if w.Host != m.host {
		s.Host = w.Host
	}
	return s
}

// inheritance returns what the holder has left that has released a Lease; nil if it has left nothing, or was not the last one.
func (m stamper) inheritance(l *coordinationv1.Lease) (*client.Handover, error) {
	text := l.Annotations[WrittenAnnotation]
	if text == "" || !released(l) || l.Spec.RenewTime == nil {
		return nil, nil //nolint:nilnil // nothing is what was left
	}
	if len(text) > maxStamp {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(text), maxStamp)
	}
	var s stamp
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	if !s.Released.Equal(l.Spec.RenewTime.Time) {
		return nil, nil //nolint:nilnil // it is of an earlier one
	}
	if len(s.Writes) > client.MostHandedOver {
		return nil, errors.New("it names more writes than are ever handed over")
	}
	h := &client.Handover{Holder: s.Holder, Released: s.Released, Unknown: s.Unknown}
	for i := range s.Writes {
		h.Writes = append(h.Writes, m.writeOf(&s.Writes[i]))
	}
	return h, nil
}

func (m stamper) writeOf(s *stampedWrite) client.Write {
	r := schema.ParseGroupResource(s.Resource)
	w := client.Write{UID: s.UID, ResourceVersion: s.Version, Effect: client.Stored}
	w.Request = client.Request{
		Verb: "update", Group: r.Group, Resource: r.Resource, Namespace: s.Namespace, Name: s.Name, Subresource: s.Subresource, Host: m.host,
	}
	if s.Host != "" {
		w.Host = s.Host
	}
	if s.Effect != "" {
		w.Verb, w.Effect = "delete", client.Effect(s.Effect)
	}
	if w.Effect == client.Accepted {
		w.Unknown = "whether it is gone or only marked"
	}
	if s.Labels != nil {
		w.Object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Labels: maps.Clone(*s.Labels)}}
	}
	return w
}

// inherit takes down what a Lease that was seen says of the term before. It stays until somebody else holds the Lease: our own
// acquisition, which removes it, may not be answered.
func (c *candidate) inherit(l *coordinationv1.Lease) {
	if c.authors.mine(l) {
		return
	}
	c.left = nil
	if l == nil {
		return
	}
	left, err := c.stamper.inheritance(l)
	if err != nil {
		c.log.Warn("what the last holder of the lease has written cannot be read, so its writes are not waited for", "annotation", WrittenAnnotation, "err", err)
	}
	c.left = left
}

// givenUp is the Lease as this process writes it at a release.
func (c *candidate) givenUp(h *holding, l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	l = givenUp(l, at)
	switch {
	case h.term != nil:
		writes, unknown := h.term.Written()
		return c.stamper.stamped(l, writes, unknown, at)
	case c.left != nil: // nobody has led meanwhile
		return c.stamper.stamped(l, c.left.Writes, c.left.Unknown, at)
	}
	return l
}
