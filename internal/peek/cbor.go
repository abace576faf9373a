// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"encoding/binary"
	"math"
)

// The major types of CBOR (RFC 8949, section 3.1).
const (
	cborUnsigned = iota
	cborNegative
	cborBytes // Kubernetes writes all its strings as these
	cborText
	cborArray
	cborMap
	cborTag
	cborSimple
)

const (
	cborNull  = 0xf6
	cborBreak = 0xff
	// cborDepth is how deep things may be nested, as in Kubernetes' own decoder.
	cborDepth = 10_000
)

func readCBOR(data []byte, o Options) (Object, bool) {
	s := cborScanner{data: data, Options: o}
	obj := s.root()
	return obj, !s.bad
}

// cborScanner goes through CBOR once. After an error, or where the input ends, it is bad, and everything returns at once.
type cborScanner struct {
	Options

	data []byte
	at   int
	bad  bool
}

// items are what is left of an array, or of a map: its keys.
type items struct {
	left       uint64
	indefinite bool
}

// root reads an object.
func (s *cborScanner) root() Object {
	var obj Object
	for in := s.enter(cborMap); s.more(&in); {
		switch string(s.text()) {
		case "kind":
			obj.Kind = s.text()
		case "metadata":
			s.metadata(&obj)
			if s.Enough && obj.Stored() {
				return obj
			}
		case "status":
			obj.Status = s.text()
		case "details":
			for in := s.enter(cborMap); s.more(&in); {
				switch string(s.text()) {
				case "name":
					obj.StatusName = s.text()
				case "uid":
					obj.StatusUID = s.text()
				default:
					s.skip(0)
				}
			}
		case "items":
			s.each(false)
		case "rows":
			s.each(true)
		case "dryRun":
			obj.DryRun = s.notEmpty()
		case "preconditions":
			s.preconditions(&obj)
		case "deleteOptions":
			for in := s.enter(cborMap); s.more(&in); {
				switch string(s.text()) {
				case "dryRun":
					obj.DryRun = s.notEmpty()
				case "preconditions":
					s.preconditions(&obj)
				default:
					s.skip(0)
				}
			}
		default:
			s.skip(0)
		}
	}
	return obj
}

func (s *cborScanner) metadata(obj *Object) {
	isMap := s.next() == cborMap
	for in := s.enter(cborMap); s.more(&in); {
		switch string(s.text()) {
		case "name":
			obj.Name = s.text()
		case "namespace":
			obj.Namespace = s.text()
		case "uid":
			obj.UID = s.text()
		case "resourceVersion":
			obj.ResourceVersion = s.text()
		case "generation":
			obj.Generation = s.integer()
		case "deletionTimestamp":
			obj.Deleting = s.at < len(s.data) && s.data[s.at] != cborNull
			s.skip(0)
		case "deletionGracePeriodSeconds":
			obj.Grace = s.integer()
		case "finalizers":
			obj.Finalizers = s.notEmpty()
		default:
			s.skip(0)
		}
	}
	obj.Metadata = isMap && !s.bad
}

func (s *cborScanner) preconditions(obj *Object) {
	for in := s.enter(cborMap); s.more(&in); {
		if string(s.text()) == "uid" {
			obj.Precondition = s.text()
		} else {
			s.skip(0)
		}
	}
}

// each reads the items of a list, or the rows of a Table.
func (s *cborScanner) each(rows bool) {
	if s.Each == nil {
		s.skip(0)
		return
	}
	outer := s.Options
	s.Options = Options{}
	defer func() { s.Options = outer }()
	one := func() {
		if s.next() != cborMap {
			s.skip(0)
		} else if obj := s.root(); !s.bad {
			outer.Each(obj)
		}
	}
	for in := s.enter(cborArray); s.more(&in); {
		if !rows {
			one()
			continue
		}
		for row := s.enter(cborMap); s.more(&row); {
			if string(s.text()) == "object" {
				one()
			} else {
				s.skip(0)
			}
		}
	}
}

// next returns the major type of what comes, after tags.
func (s *cborScanner) next() byte {
	for !s.bad && s.at < len(s.data) && s.data[s.at]>>5 == cborTag {
		s.head()
	}
	if s.bad || s.at >= len(s.data) {
		return math.MaxUint8
	}
	return s.data[s.at] >> 5
}

// head reads the beginning of an item.
func (s *cborScanner) head() (major byte, n uint64, indefinite bool) {
	if s.bad || s.at >= len(s.data) {
		s.bad = true
		return 0, 0, false
	}
	major, info := s.data[s.at]>>5, s.data[s.at]&31
	s.at++
	if info < 24 {
		return major, uint64(info), false
	}
	rest := s.data[s.at:]
	switch {
	case info == 24 && len(rest) >= 1:
		n, s.at = uint64(rest[0]), s.at+1
	case info == 25 && len(rest) >= 2:
		n, s.at = uint64(binary.BigEndian.Uint16(rest)), s.at+2
	case info == 26 && len(rest) >= 4:
		n, s.at = uint64(binary.BigEndian.Uint32(rest)), s.at+4
	case info == 27 && len(rest) >= 8:
		n, s.at = binary.BigEndian.Uint64(rest), s.at+8
	case info == 31 && major >= cborBytes && major <= cborMap:
		indefinite = true
	default:
		s.bad = true
	}
	return major, n, indefinite
}

// enter reads the head of an array or map. Of anything else, which is skipped, nothing is left.
func (s *cborScanner) enter(major byte) items {
	if s.next() != major {
		s.skip(0)
		return items{}
	}
	_, n, indefinite := s.head()
	return items{n, indefinite}
}

// more says whether another item follows.
func (s *cborScanner) more(in *items) bool {
	switch {
	case s.bad:
		return false
	case !in.indefinite:
		in.left--
		return in.left != math.MaxUint64
	case s.at >= len(s.data):
		s.bad = true
		return false
	case s.data[s.at] == cborBreak:
		s.at++
		return false
	}
	return true
}

// text reads a string; any other value is skipped and nil. One that comes in pieces, which Kubernetes does not write, is too.
func (s *cborScanner) text() []byte {
	start := s.at
	if next := s.next(); next != cborBytes && next != cborText || s.data[s.at]&31 == 31 {
		s.at = start
		s.skip(0)
		return nil
	}
	_, n, _ := s.head()
	if s.bad || n > uint64(len(s.data)-s.at) {
		s.bad = true
		return nil
	}
	start = s.at
	s.at += int(n) //nolint:gosec // not more than there is
	return s.data[start:s.at:s.at]
}

// integer reads a whole number; any other value is skipped and 0.
func (s *cborScanner) integer() int64 {
	next := s.next()
	if next != cborUnsigned && next != cborNegative {
		s.skip(0)
		return 0
	}
	_, n, _ := s.head()
	if s.bad || n > math.MaxInt64 {
		return 0
	}
	if next == cborNegative {
		return -1 - int64(n)
	}
	return int64(n)
}

// notEmpty skips a value and says whether it is an array with something in it.
func (s *cborScanner) notEmpty() bool {
	some := false
	for in := s.enter(cborArray); s.more(&in); {
		some = true
		s.skip(0)
	}
	return some
}

// skip skips a value, whatever it is.
func (s *cborScanner) skip(depth int) {
	major, n, indefinite := s.head()
	switch {
	case s.bad:
	case depth > cborDepth:
		s.bad = true
	case major == cborTag:
		s.skip(depth + 1)
	case major == cborArray || major == cborMap || indefinite: // a string without end has pieces, as an array has items
		for in := (items{n, indefinite}); s.more(&in); {
			s.skip(depth + 1)
			if major == cborMap {
				s.skip(depth + 1)
			}
		}
	case major == cborBytes || major == cborText:
		if n > uint64(len(s.data)-s.at) {
			s.bad = true
			return
		}
		s.at += int(n) //nolint:gosec // not more than there is
	}
}
