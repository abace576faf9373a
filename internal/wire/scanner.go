// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"encoding/json"
	"strconv"
)

// maxDepth is the nesting of JSON that encoding/json and sigs.k8s.io/json accept.
const maxDepth = 10_000

// jsonScanner reads and checks JSON once, forwards. After an error, or at the end of the input, err
// describes what is wrong, and all methods return at once.
type jsonScanner struct {
	data  []byte
	at    int
	depth int
	err   string
}

// fail records the first error. Nothing more is read.
func (s *jsonScanner) fail(err string) {
	s.err = cmp.Or(s.err, err)
}

// fields yields the keys of an object; the caller reads each value. Like the methods below, it
// skips any other value.
func (s *jsonScanner) fields(yield func(key []byte) bool) {
	if !s.is('{') {
		s.skip()
		return
	}
	for s.enter(); s.more('}'); {
		if key := s.key(); s.err != "" || !yield(key) {
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
	for s.enter(); s.more(']'); {
		if !yield() {
			return
		}
	}
}

// enter reads the bracket that begins an object or array.
func (s *jsonScanner) enter() {
	s.at++
	if s.depth++; s.depth > maxDepth {
		s.fail("nested too deeply")
	}
}

// more reads up to the next element of the innermost object or array, if there is one.
func (s *jsonScanner) more(end byte) bool {
	if s.err != "" {
		return false
	}
	first := s.data[s.at-1] == '{' || s.data[s.at-1] == '['
	switch {
	case s.is(end):
		s.at++
		s.depth--
		return false
	case first:
		return true
	}
	if !s.want(',', "a comma") {
		return false
	}
	s.at++
	return true
}

// is skips space and reports whether c comes next.
func (s *jsonScanner) is(c byte) bool {
	for ; s.err == "" && s.at < len(s.data); s.at++ {
		switch b := s.data[s.at]; b {
		case ' ', '\t', '\r', '\n':
		default:
			return b == c
		}
	}
	return false
}

// want fails if c does not come next.
func (s *jsonScanner) want(c byte, name string) bool {
	if !s.is(c) {
		s.fail("expected " + name)
	}
	return s.err == ""
}

// end fails if anything but space follows.
func (s *jsonScanner) end() {
	if s.is(0); s.err == "" && s.at < len(s.data) {
		s.fail("trailing data")
	}
}

func (s *jsonScanner) key() []byte {
	if !s.want('"', "a key") {
		return nil
	}
	key := s.text()
	s.colon()
	return key
}

func (s *jsonScanner) colon() {
	if s.want(':', "a colon") {
		s.at++
	}
}

// text reads a string, else returns nil.
func (s *jsonScanner) text() []byte {
	if !s.is('"') {
		s.skip()
		return nil
	}
	raw, escaped := s.quoted()
	switch {
	case s.err != "":
		return nil
	case escaped:
		return unquote(raw)
	}
	return raw[1 : len(raw)-1]
}

// unquote returns the text of a JSON string that was scanned.
func unquote(raw []byte) []byte {
	var text string
	_ = json.Unmarshal(raw, &text) // quoted has checked it
	return []byte(text)
}

// quoted reads a string that comes next.
func (s *jsonScanner) quoted() (raw []byte, escaped bool) {
	data, start := s.data, s.at
	for at := start + 1; at < len(data); at++ {
		switch c := data[at]; {
		case c == '"':
			s.at = at + 1
			return data[start:s.at], escaped
		case c == '\\':
			n := escape(data[at:])
			if n == 0 {
				s.fail("invalid escape in a string")
				return nil, false
			}
			escaped, at = true, at+n-1
		case c < ' ':
			s.fail("control character in a string")
			return nil, false
		}
	}
	s.fail("unterminated string")
	return nil, false
}

// escape returns the length of the escape that data begins with, or 0.
func escape(data []byte) int {
	if len(data) < 2 {
		return 0
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(data) < 6 {
			return 0
		}
		for _, c := range data[2:6] {
			if (c < '0' || c > '9') && (c|' ' < 'a' || c|' ' > 'f') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// integer reads a number. ok reports that it is a whole number of 64 bits, without an exponent.
func (s *jsonScanner) integer() (n int64, ok bool) {
	s.is(0) // skips space
	start := s.at
	s.skip()
	if s.err != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(string(s.data[start:s.at]), 10, 64)
	return n, err == nil
}

func (s *jsonScanner) notEmpty() (some bool) {
	for range s.elements {
		some = true
		s.skip()
	}
	return some
}

// skip reads a value.
func (s *jsonScanner) skip() {
	s.is(0) // skips space
	if s.err != "" || s.at >= len(s.data) {
		s.fail("expected a value")
		return
	}
	switch c := s.data[s.at]; c {
	case '"':
		s.quoted()
	case '{':
		for s.enter(); s.more('}'); s.skip() {
			if s.want('"', "a key") {
				s.quoted()
				s.colon()
			}
		}
	case '[':
		for s.enter(); s.more(']'); {
			s.skip()
		}
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
	}
}

func (s *jsonScanner) literal(word string) {
	if end := s.at + len(word); end <= len(s.data) && string(s.data[s.at:end]) == word {
		s.at = end
		return
	}
	s.fail("expected a value")
}

// number reads a number as RFC 8259 defines it.
func (s *jsonScanner) number() {
	if s.data[s.at] == '-' {
		s.at++
	}
	zero := s.at < len(s.data) && s.data[s.at] == '0'
	if n := s.digits(); n == 0 || zero && n > 1 {
		s.fail("expected a value")
		return
	}
	if s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		if s.digits() == 0 {
			s.fail("expected digits after the decimal point")
			return
		}
	}
	if s.at < len(s.data) && s.data[s.at]|' ' == 'e' {
		s.at++
		if s.at < len(s.data) && (s.data[s.at] == '+' || s.data[s.at] == '-') {
			s.at++
		}
		if s.digits() == 0 {
			s.fail("expected digits in the exponent")
		}
	}
}

func (s *jsonScanner) digits() int {
	start := s.at
	for s.at < len(s.data) && '0' <= s.data[s.at] && s.data[s.at] <= '9' {
		s.at++
	}
	return s.at - start
}
