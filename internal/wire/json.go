// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
)

func readJSON(data []byte, o Options) (Metadata, bool) {
	s := jsonScanner{data: data, Options: o}
	s.bad = !s.is('{')
	obj := s.root()
	return obj, !s.bad
}

// jsonScanner reads JSON once, forwards. bad is set after an error or at the end of the input; then
// all methods return at once.
type jsonScanner struct {
	Options

	data []byte
	at   int
	bad  bool
}

// root reads an object. The last of several fields with one name counts, as in encoding/json.
func (s *jsonScanner) root() (obj Metadata) {
	for key := range s.fields {
		switch string(key) {
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
			obj.StatusName, obj.StatusUID = nil, nil
			for key := range s.fields {
				switch string(key) {
				case "name":
					obj.StatusName = s.text()
				case "uid":
					obj.StatusUID = s.text()
				default:
					s.skip()
				}
			}
		case "items", "rows":
			s.list(string(key) == "rows")
		case "deleteOptions":
			obj.DryRun, obj.Precondition = false, nil
			for key := range s.fields {
				s.deleteOption(&obj, key)
			}
		default:
			s.deleteOption(&obj, key)
		}
	}
	return obj
}

func (s *jsonScanner) metadata(obj *Metadata) {
	*obj = Metadata{
		Kind: obj.Kind, Status: obj.Status, StatusName: obj.StatusName, StatusUID: obj.StatusUID,
		DryRun: obj.DryRun, Precondition: obj.Precondition, Metadata: s.is('{'),
	}
	for key := range s.fields {
		switch string(key) {
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
			obj.Deleting = !s.is('n')
			s.skip()
		case "deletionGracePeriodSeconds":
			obj.Grace = s.integer()
		case "finalizers":
			obj.Finalizers = s.notEmpty()
		default:
			s.skip()
		}
	}
	obj.Metadata = obj.Metadata && !s.bad
}

func (s *jsonScanner) deleteOption(obj *Metadata, key []byte) {
	switch string(key) {
	case "dryRun":
		obj.DryRun = s.notEmpty()
	case "preconditions":
		obj.Precondition = nil
		for key := range s.fields {
			if string(key) == "uid" {
				obj.Precondition = s.text()
			} else {
				s.skip()
			}
		}
	default:
		s.skip()
	}
}

func (s *jsonScanner) list(rows bool) {
	if s.Each == nil {
		s.skip()
		return
	}
	for range s.elements {
		if !rows {
			s.item()
			continue
		}
		for key := range s.fields {
			if string(key) == "object" {
				s.item()
			} else {
				s.skip()
			}
		}
	}
}

func (s *jsonScanner) item() {
	if !s.is('{') {
		s.skip()
		return
	}
	inner := jsonScanner{data: s.data, at: s.at}
	obj := inner.root()
	if s.at, s.bad = inner.at, inner.bad; !s.bad {
		s.Each(obj)
	}
}

// fields yields the keys of an object; the caller reads each value. Like the methods below, it
// skips any other value.
func (s *jsonScanner) fields(yield func(key []byte) bool) {
	if !s.is('{') {
		s.skip()
		return
	}
	for s.at++; s.more('}'); {
		if key := s.key(); s.bad || !yield(key) {
			return
		}
	}
}

// elements yields for each element of an array; the caller reads it.
func (s *jsonScanner) elements(yield func() bool) {
	if !s.is('[') {
		s.skip()
		return
	}
	for s.at++; s.more(']'); {
		if !yield() {
			return
		}
	}
}

// more reads up to the next element of the innermost object or array, if there is one.
func (s *jsonScanner) more(end byte) bool {
	if s.bad {
		return false
	}
	first := s.data[s.at-1] == '{' || s.data[s.at-1] == '['
	switch {
	case s.is(end):
		s.at++
		return false
	case first:
		return true
	}
	s.bad = !s.is(',')
	s.at++
	return !s.bad
}

// is skips space and reports whether c comes next.
func (s *jsonScanner) is(c byte) bool {
	for ; !s.bad && s.at < len(s.data); s.at++ {
		switch b := s.data[s.at]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b == c
		}
	}
	return false
}

func (s *jsonScanner) key() []byte {
	if !s.is('"') {
		s.bad = true
		return nil
	}
	key := s.text()
	if !s.is(':') {
		s.bad = true
		return nil
	}
	s.at++
	return key
}

// text reads a string, else returns nil.
func (s *jsonScanner) text() []byte {
	if !s.is('"') {
		s.skip()
		return nil
	}
	raw, escaped := s.quoted()
	if s.bad {
		return nil
	}
	if !escaped {
		return raw[1 : len(raw)-1]
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		s.bad = true
		return nil
	}
	return []byte(text)
}

func (s *jsonScanner) quoted() (raw []byte, escaped bool) {
	start := s.at
	s.at++
	for {
		end := bytes.IndexByte(s.data[s.at:], '"')
		if end < 0 {
			s.bad = true
			return nil, false
		}
		backslash := bytes.IndexByte(s.data[s.at:s.at+end], '\\')
		if backslash < 0 {
			s.at += end + 1
			return s.data[start:s.at], escaped
		}
		escaped = true
		s.at += backslash + 2
		if s.at > len(s.data) {
			s.bad = true
			return nil, false
		}
	}
}

// integer reads a whole number, else returns 0.
func (s *jsonScanner) integer() int64 {
	s.is(0) // skips space
	start := s.at
	s.skip()
	if s.bad {
		return 0
	}
	n, err := strconv.ParseInt(string(s.data[start:s.at]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s *jsonScanner) notEmpty() (some bool) {
	for range s.elements {
		some = true
		s.skip()
	}
	return some
}

func (s *jsonScanner) skip() {
	switch {
	case s.bad:
	case s.is('"'):
		s.quoted()
	case s.is('{') || s.is('['):
		s.nested()
	default:
		n := bytes.IndexAny(s.data[s.at:], ",:}]{[\" \t\r\n")
		if n < 0 {
			n = len(s.data) - s.at
		}
		s.at, s.bad = s.at+n, n == 0
	}
}

// nested skips an object or array. Its loop is fast, because it skips most of the metadata.
func (s *jsonScanner) nested() {
	data, at := s.data, s.at
	for depth := 0; at < len(data); at++ {
		switch data[at] {
		case '"':
			for at++; at < len(data) && data[at] != '"'; at++ {
				if data[at] == '\\' {
					at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.at = at + 1
				return
			}
		}
	}
	s.at, s.bad = len(data), true
}
