// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"time"
	"unicode/utf8"
)

// jsonCompactor reads an object from its first to its last byte.
type jsonCompactor struct {
	jsonScanner
	layout

	keep bool
}

func compactJSON(data []byte, keep bool) (Compacted, error) {
	c := jsonCompactor{jsonScanner: jsonScanner{data: data}, keep: keep}
	c.want('{', "an object")
	c.object.from = c.at
	c.root()
	c.object.to = c.at
	c.end()
	if c.err == "" && c.meta.to == 0 {
		c.fail("no metadata")
	}
	if c.err != "" {
		return Compacted{}, fmt.Errorf("wire: JSON at byte %d: %s", c.at, c.err)
	}
	return c.compacted(data), nil
}

func (c *jsonCompactor) root() {
	var apiVersion, kind bool
	for key := range c.fields {
		switch {
		case string(key) == "metadata":
			c.metadata()
		case string(key) == "apiVersion" && !apiVersion:
			apiVersion, c.apiVersion = true, c.string()
		case string(key) == "kind" && !kind:
			kind, c.kind = true, c.string()
		case bytes.EqualFold(key, []byte("apiVersion")), bytes.EqualFold(key, []byte("kind")):
			c.fail("duplicate apiVersion or kind") // decoders find the kind by any case
		default:
			c.skip()
		}
	}
}

func (c *jsonCompactor) metadata() {
	if c.meta.to != 0 {
		c.fail("duplicate metadata")
	}
	if !c.want('{', "an object") {
		return
	}
	c.meta.from = c.at
	before := c.at + 1 // the next key, without the comma before it
	for key := range c.fields {
		number := metaField(key)
		if number != 0 && !c.first(number) {
			c.fail("duplicate " + string(key) + " in metadata")
		}
		switch number {
		case metaName, metaGenerateName, metaNamespace, metaSelfLink, metaUID, metaResourceVersion:
			c.texts[number] = c.string()
		case metaGeneration:
			c.generation = c.int64()
		case metaDeletion:
			c.filled[number] = c.time()
		case metaLabels, metaAnnotations:
			c.filled[number] = c.stringMap()
		case metaOwners:
			c.filled[number] = c.list('{', "an object")
		case metaFinalizers:
			c.filled[number] = c.list('"', "a string")
		case metaManaged:
			c.managedFields(before)
		default:
			c.skip()
		}
		before = c.at
	}
	c.meta.to = c.at
}

// managedFields cuts a field, with the comma before it, or after it if it is the first.
func (c *jsonCompactor) managedFields(before int) {
	c.list('{', "an object")
	if c.keep || c.err != "" {
		return
	}
	c.cut = span{from: before, to: c.at}
	if c.data[before-1] == '{' && c.is(',') {
		c.cut.to = c.at + 1
	}
}

// null reads null, which decoders take for an empty value.
func (c *jsonCompactor) null() bool {
	if !c.is('n') {
		return false
	}
	c.skip()
	return true
}

func (c *jsonCompactor) string() span {
	if c.null() || !c.want('"', "a string") {
		return span{}
	}
	raw, escaped := c.quoted()
	switch {
	case c.err != "":
		return span{}
	case !utf8.Valid(raw):
		c.fail("invalid UTF-8 in a string")
		return span{}
	case escaped:
		return span{unescaped: string(unquote(raw))}
	}
	return span{from: c.at - len(raw) + 1, to: c.at - 1}
}

func (c *jsonCompactor) int64() int64 {
	if c.null() {
		return 0
	}
	n, ok := c.integer()
	if !ok {
		c.fail("expected an integer of 64 bits")
	}
	return n
}

// time reports whether there is one. The zero time is none for some decoders.
func (c *jsonCompactor) time() bool {
	if c.null() {
		return false
	}
	s := c.string()
	if c.err != "" {
		return false
	}
	text := s.unescaped
	if s.to != 0 {
		text = string(c.data[s.from:s.to])
	}
	if t, err := time.Parse(time.RFC3339, text); err != nil || t.IsZero() {
		c.fail("expected a time after the year 1")
	}
	return true
}

// stringMap reports whether a map of strings is not empty.
func (c *jsonCompactor) stringMap() (some bool) {
	if c.null() || !c.want('{', "an object") {
		return false
	}
	for range c.fields {
		if some = true; !c.null() && c.want('"', "a string") {
			c.quoted()
		}
	}
	return some
}

// list reports whether an array, whose elements all begin with a byte, is not empty.
func (c *jsonCompactor) list(begin byte, name string) (some bool) {
	if c.null() || !c.want('[', "an array") {
		return false
	}
	for range c.elements {
		if some = true; c.want(begin, name) {
			c.skip()
		}
	}
	return some
}
