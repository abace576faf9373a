// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "google.golang.org/protobuf/encoding/protowire"

const ownerUID = 4 // OwnerReference

// OwnerUIDs returns the UIDs of all owner references, as parts of meta, which is
// Data[MetaStart:MetaEnd] of a Compacted in protobuf. ok is false if it cannot read a reference.
func OwnerUIDs(meta string) (uids []string, ok bool) {
	for at := 0; at < len(meta); {
		number, value, next := fieldAt(meta, at, len(meta))
		if next == 0 {
			return nil, false
		}
		if at = next; number != metaOwners {
			continue
		}
		uid := ""
		for in := value; in < next; {
			var start, end int
			if number, start, end = fieldAt(meta, in, next); end == 0 {
				return nil, false
			}
			if in = end; number == ownerUID {
				uid = meta[start:end]
			}
		}
		uids = append(uids, uid)
	}
	return uids, true
}

// fieldAt returns the number of a field and where its value begins and ends; end is 0 if it cannot
// be read. The value of a string or message is its content.
func fieldAt(data string, at, limit int) (number protowire.Number, start, end int) {
	tag, n := varintAt(data, at, limit)
	if n == 0 {
		return 0, 0, 0
	}
	at += n
	number, kind := protowire.DecodeTag(tag)
	value, n := varintAt(data, at, limit)
	switch {
	case n == 0:
		return 0, 0, 0
	case kind == protowire.VarintType:
		return number, at, at + n
	case kind == protowire.BytesType && value <= uint64(limit-at-n): //nolint:gosec // not negative
		return number, at + n, at + n + int(value) //nolint:gosec // at most limit
	default:
		return 0, 0, 0
	}
}

func varintAt(data string, at, limit int) (value uint64, length int) {
	for n := 0; n < 10 && at+n < limit; n++ {
		b := data[at+n]
		value |= uint64(b&0x7f) << (7 * n)
		if b < 0x80 {
			return value, n + 1
		}
	}
	return 0, 0
}
