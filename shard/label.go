// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// LabelKey returns the key of the label of [Options].LabelChildren, for a group with this Lease:
// slot.setpoint.dev/LEASE. An object has the label if a Reconcile of its controller's key wrote it.
// An object without the label is no mistake: every replica receives it, and drops it if its slot is
// another replica's.
func LabelKey(lease string) string { return "slot.setpoint.dev/" + lease }

// LabelValue returns the value for the objects of a slot whose controller has a kind. It has a hash
// of the name of the By and of the kind, so labels of another By select nothing. The same holds for
// labels that were copied from a child to its own children.
func (b By) LabelValue(owner schema.GroupKind, slot uint8) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(b.String() + "\n" + owner.String())) // it cannot fail
	return fmt.Sprintf("%08x.%d", h.Sum32(), slot)
}
