// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"encoding/json"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// Annotations of a member's Lease: the version of the Lease when the member acquired it, the
// version of the newest assignment that it has seen, and the settings that all members must share.
const (
	sessionAnnotation  = "setpoint.dev/shard-session"
	seenAnnotation     = "setpoint.dev/shard-seen"
	settingsAnnotation = "setpoint.dev/shard-settings"
)

// heartbeat is what a member's Lease shows of its holder.
type heartbeat struct {
	session, seen uint64 // zero without a holder, or if the holder has not renewed the Lease yet
	author        author
}

// author is who wrote the holder, the time of the renewal and the session of a member's Lease.
type author int

const (
	untracked author = iota // the API server does not track it
	oneAuthor               // one writer: the elector of a member, or an expirer
	edited                  // one of them was edited by hand: nothing follows from the Lease
)

func heartbeatOf(l *coordinationv1.Lease) (n heartbeat) {
	if l == nil {
		return n
	}
	n.author = authorOf(l)
	if lease.Holder(l) != "" {
		n.session, _ = strconv.ParseUint(l.Annotations[sessionAnnotation], 10, 64)
		n.seen, _ = strconv.ParseUint(l.Annotations[seenAnnotation], 10, 64)
	}
	return n
}

// authorOf reads metadata.managedFields. An elector writes all three parts. An expirer deletes
// the session.
func authorOf(l *coordinationv1.Lease) author {
	if len(l.ManagedFields) == 0 {
		return untracked
	}
	found := edited
	for _, e := range l.ManagedFields {
		of := ownedBy(e)
		parts := 0
		for _, owns := range []bool{of.spec("holderIdentity"), of.spec("renewTime"), of.annotation(sessionAnnotation)} {
			if owns {
				parts++
			}
		}
		switch {
		case parts == 3, parts == 2 && e.Manager == slots.Manager && !of.annotation(sessionAnnotation):
			found = oneAuthor
		case parts > 0:
			return edited
		}
	}
	return found
}

// managerOf returns the field manager of an annotation. If there are several, it returns another
// one than ours.
func managerOf(l *coordinationv1.Lease, annotation string) (manager string) {
	for _, e := range l.ManagedFields {
		if !ownedBy(e).annotation(annotation) {
			continue
		}
		if manager = e.Manager; manager != slots.Manager {
			return manager
		}
	}
	return manager
}

// managedFields are the fields of one manager.
type managedFields struct {
	Metadata struct {
		Annotations map[string]json.RawMessage `json:"f:annotations"`
	} `json:"f:metadata"`
	Spec map[string]json.RawMessage `json:"f:spec"`

	unread bool // they are unknown, which is as bad as another manager
}

func ownedBy(e metav1.ManagedFieldsEntry) (of managedFields) {
	if e.FieldsV1 != nil {
		of.unread = json.Unmarshal(e.FieldsV1.GetRawBytes(), &of) != nil
	}
	return of
}

func (o managedFields) annotation(name string) bool {
	_, ok := o.Metadata.Annotations["f:"+name]
	return ok || o.unread
}

func (o managedFields) spec(field string) bool {
	_, ok := o.Spec["f:"+field]
	return ok || o.unread
}
