// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

func (r *listReader) json() error {
	body := json.NewDecoder(r.body)
	if err := expect(body, json.Delim('{')); err != nil {
		return err
	}
	var apiVersion, kind string
	items := false
	for body.More() {
		key, err := body.Token()
		switch {
		case err != nil:
		case key == "apiVersion":
			err = body.Decode(&apiVersion)
		case key == "kind":
			err = body.Decode(&kind)
		case key == "metadata":
			err = body.Decode(&r.list.ListMeta)
		case key == "items" && items:
			err = errors.New("it has items twice")
		case key == "items":
			items = true
			body, err = r.jsonItems(body)
		default:
			err = body.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
	if err := expect(body, json.Delim('}')); err != nil {
		return err
	}
	if _, err := body.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one JSON value")
	}
	return r.check(apiVersion, kind, items)
}

func expect(body *json.Decoder, want json.Token) error {
	found, err := body.Token()
	if err == nil && found != want {
		err = fmt.Errorf("it has %v where %v was expected", found, want)
	}
	return err
}

// jsonItems reads the value of items, and returns a decoder for the fields after it. A decoder
// would fail for the whole list if one item is no JSON.
func (r *listReader) jsonItems(body *json.Decoder) (after *json.Decoder, err error) {
	rest := bufio.NewReaderSize(io.MultiReader(body.Buffered(), r.body), 64<<10)
	if c, err := next(rest); err != nil || c != ':' {
		return nil, cmp.Or(err, errNoItems)
	}
	switch c, err := next(rest); {
	case err != nil:
		return nil, err
	case c == 'n': // null
		err = rest.UnreadByte()
		var item valueReader
		if err == nil {
			err = item.read(rest)
		}
		if err == nil && strings.TrimSpace(string(item.data)) != "null" {
			err = errNoItems
		}
		if err != nil {
			return nil, err
		}
	case c != '[':
		return nil, errNoItems
	default:
		if err := r.eachItem(rest); err != nil {
			return nil, err
		}
	}
	return r.afterItems(rest)
}

var errNoItems = errors.New("its items are no array")

// eachItem reads items up to the end of their array.
func (r *listReader) eachItem(rest *bufio.Reader) error {
	c, err := next(rest)
	if err != nil || c == ']' {
		return err
	}
	if err := rest.UnreadByte(); err != nil {
		return err
	}
	var item valueReader
	for {
		if err := item.read(rest); err != nil {
			return err
		}
		if err := r.items.add(bytes.NewReader(item.data), int64(len(item.data))); err != nil {
			return err
		}
		switch c, err := next(rest); {
		case err != nil:
			return err
		case c == ']':
			return nil
		case c != ',':
			return fmt.Errorf("it has %q after an item", c)
		}
	}
}

// afterItems returns a decoder in the middle of an object.
func (r *listReader) afterItems(rest *bufio.Reader) (*json.Decoder, error) {
	c, err := next(rest)
	if err != nil {
		return nil, err
	}
	begin := "{"
	switch c {
	case ',':
	case '}':
		begin = "{}"
	default:
		return nil, fmt.Errorf("it has %q after its items", c)
	}
	r.body = rest
	after := json.NewDecoder(io.MultiReader(strings.NewReader(begin), rest))
	_, err = after.Token()
	return after, err
}

// next reads the next byte that is no space.
func next(from *bufio.Reader) (byte, error) {
	for {
		c, err := from.ReadByte()
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
	}
}

// valueReader reads one JSON value. It finds where the value ends, and does not check it.
type valueReader struct {
	data            []byte // until the next read
	depth           int
	quoted, escaped bool
}

func (v *valueReader) read(from *bufio.Reader) error {
	*v = valueReader{data: v.data[:0]}
	for {
		if _, err := from.Peek(1); err != nil {
			return err
		}
		buffered, err := from.Peek(from.Buffered())
		if err != nil {
			return err
		}
		n, ended := v.end(buffered)
		v.data = append(v.data, buffered[:n]...)
		if _, err := from.Discard(n); err != nil {
			return err
		}
		if ended && len(v.data) == 0 {
			return errors.New("it has an empty item")
		}
		if ended {
			return nil
		}
	}
}

// end returns how many of the bytes belong to the value, and whether it ends there.
func (v *valueReader) end(data []byte) (n int, ended bool) {
	for n, c := range data {
		switch {
		case v.escaped:
			v.escaped = false
		case v.quoted:
			v.escaped = c == '\\'
			v.quoted = c != '"'
		case c == '"':
			v.quoted = true
		case c == '{' || c == '[':
			v.depth++
		case v.depth == 0 && (c == ',' || c == ']' || c == '}'):
			return n, true // the end of a number, a string or the like
		case c == '}' || c == ']':
			if v.depth--; v.depth == 0 {
				return n + 1, true
			}
		}
	}
	return len(data), false
}
