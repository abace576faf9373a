// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

const (
	// SlotsAnnotation is the annotation of the group's Lease with the assignment of slots to
	// members, as JSON. Only members may write it: they notice another writer, and start over.
	SlotsAnnotation = "setpoint.dev/slots"

	// Holder is the holderIdentity of the group's Lease while the group has members. It has no
	// time limit, so electors of one leader wait until the last member has left.
	Holder = "all members of the shard group"
)

// held reports whether the group holds its Lease.
func held(l *coordinationv1.Lease) bool { return l != nil && lease.Holder(l) == Holder }

// recordOf returns the record for the rules. While another process holds the Lease, the record has
// no assignment. at is the version without the Lease.
func recordOf(l *coordinationv1.Lease, at uint64) (slots.Record, error) {
	if l == nil {
		return slots.Record{Version: at, Missing: true}, nil
	}
	version, err := parseVersion(l.ResourceVersion)
	if err != nil {
		return slots.Record{}, err
	}
	r := slots.Record{Version: version}
	if !held(l) {
		r.Manager = lease.Holder(l)
		return r, nil
	}
	r.Manager, r.Text = managerOf(l, SlotsAnnotation), l.Annotations[SlotsAnnotation]
	return r, nil
}

// stored returns the Lease to store for an assignment. before is the Lease that it replaces, or
// nil. If the last member leaves, the Lease is free for an elector of one leader.
func (r *requests) stored(before *coordinationv1.Lease, n *slots.Assignment, leaving bool, now time.Time) (*coordinationv1.Lease, error) {
	text, err := n.Encode()
	if err != nil {
		return nil, err
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: r.group}}
	if n.Version() != 0 {
		l = before.DeepCopy()
		if v, err := parseVersion(l.ResourceVersion); err != nil || v != n.Version() {
			return nil, fmt.Errorf("the Lease %s has another version than the assignment", r)
		}
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, SlotsAnnotation, text)
	switch _, recovering := n.Recovering(); {
	case leaving && len(n.Members()) == 0 && !recovering:
		return lease.GivenUp(l, now), nil
	case held(l):
		return lease.Held(l, Holder, lease.NoLimit, now), nil
	}
	return lease.Acquired(l, Holder, lease.NoLimit, now), nil
}
