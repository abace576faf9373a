// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

const ownerUID = 4 // OwnerReference

// OwnerUIDs returns the UIDs of all owner references, as parts of meta, which is
// Data[MetaStart:MetaEnd] of a Compacted in protobuf. ok is false if it cannot read a reference.
func OwnerUIDs(meta string) (uids []string, ok bool) {
	m := fields{rest: []byte(meta)}
	for m.next() {
		if m.number != metaOwners {
			continue
		}
		uid := ""
		owner := fields{rest: m.bytes}
		for owner.next() {
			if owner.number == ownerUID {
				at := owner.span(len(meta) - len(m.rest))
				uid = meta[at.from:at.to]
			}
		}
		if !owner.whole {
			return nil, false
		}
		uids = append(uids, uid)
	}
	if !m.whole {
		return nil, false
	}
	return uids, true
}
