// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/term"
)

// Status describes a group as this process sees it.
type Status struct {
	// Group is NAMESPACE/NAME of the group's Lease. UID is the Lease's, or empty if unknown.
	Group string
	UID   types.UID
	// Read reports whether this process could ever read the group's Lease, or its absence.
	Read bool
	// Member is this member: the name of its Lease, and the version at which it acquired it. It is
	// empty while the process holds no Lease; then the fields below are zero.
	Member string
	// Standby reports whether this process cannot be a member now, and waits: another process holds
	// the group's Lease, the members use other settings, each slot has a member of its own, or
	// members of another group of the same program work.
	Standby bool
	// First reports whether this member comes first, by name, of those that are alive. It reports
	// for all.
	First bool
	// Epoch is the version of the newest assignment, or 0 without one.
	Epoch uint64
	// Members are all members, by name.
	Members []MemberStatus
	// Owned are the slots of this process.
	Owned SlotList
	// Moving is the number of slots that are about to change their owner.
	Moving int
	// Unserved are the slots for which no member acts, as far as this process knows: the oldest
	// first. Each move of a slot is listed for a moment. A process that the group refuses lists
	// none.
	Unserved []Unserved
	// Trouble is why there is no valid assignment, or empty.
	Trouble string

	owners [term.Slots]string // identities
}

// Owner returns the identity of the member that owns a slot, or "" if that is unknown. unserved is
// why no member acts for the slot now, or "".
func (g *Group) Owner(slot uint8) (identity, unserved string) {
	s := g.Status()
	for _, u := range s.Unserved {
		if slices.Contains(u.Slots, int(slot)) {
			unserved = u.Reason
		}
	}
	return s.owners[slot], unserved
}

// MemberStatus describes a member.
type MemberStatus struct {
	// Name is the name of its Lease, and Identity the holder: usually the Pod's name and a UUID.
	Name, Identity string
	// Weight is its Options.Weight.
	Weight int
	// Leaving reports whether it gives up its slots.
	Leaving bool
	// Slots is the number of its slots.
	Slots int
	// Silent is since when it has not renewed its Lease, or zero.
	Silent time.Time `json:",omitzero"`
}

// Unserved describes slots for which no member acts, for one reason.
type Unserved struct {
	// Slots are their numbers, from 0 to 255.
	Slots SlotList
	// Since is when the oldest of them began.
	Since time.Time
	// Reason is a clause, such as "its owner web-1a2b3c4d@7 does not renew its Lease".
	Reason string
}

// SlotList has numbers of slots, in order. As text and JSON, they are ranges such as "0-3,7".
type SlotList []int

// String returns the ranges.
func (s SlotList) String() string {
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(s[j]))
		}
		i = j + 1
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler.
func (s SlotList) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
