// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"strings"
)

// Leaves are hashes of the fields of an object or a patch, to compare objects without keeping them.
// The hashes depend only on the content.
type Leaves struct {
	// Values has a hash of path and value for each string, number, boolean, null and empty list or
	// object, in no particular order. Version, generation and managed fields are left out.
	Values []uint64
	// Shape is a hash of all paths.
	Shape uint64
}

// maxLeaves limits the memory of Leaves to 64 KiB.
const maxLeaves = 8 << 10

// LeavesOf returns the fields of an object, or of a merge, strategic merge or apply patch, in JSON.
// It returns false if data is not one object, or has too many fields.
//
// An element of a list has the same path in a patch as in an object, wherever it is in the list, if
// it is an object with one of the usual keys: type, name, key, id, uid or ip.
func LeavesOf(data []byte) (Leaves, bool) {
	s := leafReader{jsonScanner: jsonScanner{data: data}}
	s.want('{', "an object")
	s.object(emptyHash, inRoot)
	s.end()
	return s.Leaves, s.err == ""
}

// LeavesOfJSONPatch is LeavesOf for a JSON patch. It returns also the version that a test of the
// patch demands, or "".
func LeavesOfJSONPatch(data []byte) (fields Leaves, version string, ok bool) {
	var operations []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if json.Unmarshal(data, &operations) != nil {
		return Leaves{}, "", false
	}
	for _, o := range operations {
		if o.Op == "test" {
			if o.Path == "/metadata/resourceVersion" {
				_ = json.Unmarshal(o.Value, &version) // another value is no version
			}
			continue
		}
		at := emptyHash
		for step := range strings.SplitSeq(strings.TrimPrefix(o.Path, "/"), "/") {
			at = at.field([]byte(unescapePointer.Replace(step)))
		}
		fields.Shape += at.sum()
		if o.Op != "add" && o.Op != "replace" {
			continue
		}
		s := leafReader{jsonScanner: jsonScanner{data: o.Value}, Leaves: fields}
		s.value(at, elsewhere)
		if s.err != "" {
			return Leaves{}, "", false
		}
		fields = s.Leaves
	}
	return fields, version, true
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// leafReader adds what it reads to its Leaves.
type leafReader struct {
	jsonScanner
	Leaves
}

type place uint8

const (
	elsewhere place = iota
	inRoot
	inMetadata
)

func (s *leafReader) add(path hash, kind byte, value []byte) {
	if len(s.Values) >= maxLeaves {
		s.fail("too many fields")
		return
	}
	s.Shape += path.sum()
	s.Values = append(s.Values, path.byte(kind).bytes(value).sum())
}

func (s *leafReader) value(path hash, in place) {
	switch {
	case s.is('{'):
		s.object(path, in)
	case s.is('['):
		s.list(path)
	case s.is('"'):
		s.add(path, 's', s.text())
	default:
		start := s.at
		s.skip()
		if s.err == "" {
			s.add(path, 'v', s.data[start:s.at])
		}
	}
}

func (s *leafReader) object(path hash, in place) {
	none := true
	for key := range s.fields {
		none = false
		next := elsewhere
		switch name := string(key); {
		case in == inRoot && name == "metadata":
			next = inMetadata
		case in == inMetadata && (name == "resourceVersion" || name == "generation" || name == "managedFields"):
			s.skip()
			continue
		}
		s.value(path.field(key), next)
	}
	if none && s.err == "" {
		s.add(path, '{', nil)
	}
}

func (s *leafReader) list(path hash) {
	order, n := emptyHash, 0
	for range s.elements {
		id := s.identity()
		if id != nil {
			order = order.byte('.').bytes(id)
			s.value(path.byte('[').bytes(id), elsewhere)
		} else {
			s.value(path.byte('#').byte(byte(n)).byte(byte(n>>8)).byte(byte(n>>16)), elsewhere)
		}
		n++
	}
	switch {
	case s.err != "":
	case n == 0:
		s.add(path, '[', nil)
	case order != emptyHash:
		s.add(path.byte('o'), 'o', order.text())
	}
}

// identity returns the value of the first usual key of an element, or nil. It does not move on.
func (s *leafReader) identity() (id []byte) {
	if !s.is('{') {
		return nil
	}
	ahead := s.jsonScanner
	best := len(usualKeys)
	for key := range ahead.fields {
		i := 0
		for i < best && usualKeys[i] != string(key) {
			i++
		}
		if i < best && ahead.is('"') {
			best, id = i, ahead.text()
			continue
		}
		ahead.skip()
	}
	return id
}

var usualKeys = [...]string{"type", "name", "key", "id", "uid", "ip"}

// hash is FNV-1a.
type hash uint64

const emptyHash hash = 14695981039346656037

func (h hash) byte(b byte) hash { return (h ^ hash(b)) * 1099511628211 }

func (h hash) bytes(data []byte) hash {
	for _, b := range data {
		h = h.byte(b)
	}
	return h
}

func (h hash) field(name []byte) hash { return h.byte('.').bytes(name) }

func (h hash) text() []byte {
	var text [8]byte
	for i := range text {
		text[i] = byte(h >> (8 * i))
	}
	return text[:]
}

// sum mixes the bits, so that sums of hashes rarely collide. The constants are splitmix64's.
func (h hash) sum() uint64 {
	x := uint64(h)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
