// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// list is a list of objects as they are stored.
type list struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []apiruntime.Object
}

// DeepCopyObject returns a copy of the list with the same objects.
func (l *list) DeepCopyObject() apiruntime.Object {
	c := &list{TypeMeta: l.TypeMeta, Items: slices.Clone(l.Items)}
	l.DeepCopyInto(&c.ListMeta)
	return c
}

// listReader reads a list from a response, without keeping the whole response. Other goroutines
// read the items.
type listReader struct {
	*decoder

	body  *bufio.Reader
	list  *list
	items *itemReader
}

func (d *decoder) readList(body io.Reader) (apiruntime.Object, error) {
	r := &listReader{decoder: d, body: bufio.NewReaderSize(body, 64<<10), list: &list{}}
	err := r.read()
	if r.items != nil {
		var incomplete error
		r.list.Items, incomplete = r.items.wait()
		err = cmp.Or(err, incomplete)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("the list of %s: %w", d.Kind.Kind, err)
	}
	return r.list, nil
}

func (r *listReader) read() error {
	f, err := formatOf(r.body)
	if err != nil {
		return err
	}
	read := func(item []byte) apiruntime.Object { return r.item(f, item) }
	r.items = &itemReader{read: read, slots: make(chan struct{}, runtime.GOMAXPROCS(0)), batches: []*batch{{}}}
	if f == wire.Protobuf {
		return r.protobuf()
	}
	return r.json()
}

// check returns an error for a response that is not a list of the kind. In JSON, a CRD may choose
// any kind for its lists; their items name their kind.
func (r *listReader) check(apiVersion, kind string, items bool) error {
	want := ListKind(r.Kind)
	switch {
	case kind == want.Kind && (apiVersion == "" || apiVersion == want.GroupVersion().String()):
		return nil
	case kind == "" && items:
		return nil
	case kind == "" || !items && !strings.HasSuffix(kind, "List") || r.speaksProtobuf():
		return fmt.Errorf("the API server sent a %q of %q", kind, apiVersion)
	}
	return nil
}

// formatOf returns the format of a response from its first byte: an API server may answer in
// another format than the preferred one.
func formatOf(body *bufio.Reader) (wire.Format, error) {
	first, err := body.Peek(1)
	if err != nil {
		return wire.Unknown, err
	}
	switch first[0] {
	case 'k', 0: // the envelope, or the length of a watch's frame
		return wire.Protobuf, nil
	default:
		return wire.JSON, nil
	}
}

// protobuf reads an envelope, whose message is the list.
func (r *listReader) protobuf() error {
	magic := make([]byte, 4)
	if _, err := io.ReadFull(r.body, magic); err != nil {
		return err
	}
	if string(magic) != "k8s\x00" {
		return errors.New("it has no protobuf envelope")
	}
	read := false
	whole := &message{body: r.body, left: 1 << 62}
	for {
		number, length, err := whole.field()
		if errors.Is(err, io.EOF) && read {
			return nil
		}
		if err != nil {
			return err
		}
		switch number {
		case wire.UnknownTypeMeta:
			var kind apiruntime.TypeMeta
			if err := whole.read(length, kind.Unmarshal); err != nil {
				return err
			}
			err = r.check(kind.APIVersion, kind.Kind, true)
		case wire.UnknownContentEncoding, wire.UnknownContentType:
			if length > 0 {
				err = errors.New("its content is encoded")
			}
		case wire.UnknownRaw:
			if read {
				return errors.New("it has its content twice")
			}
			read = true
			whole.left -= length
			err = r.protobufItems(&message{body: r.body, left: length})
		default:
			err = whole.read(length, func([]byte) error { return nil })
		}
		if err != nil {
			return err
		}
	}
}

func (r *listReader) protobufItems(list *message) error {
	for list.left > 0 {
		number, length, err := list.field()
		switch {
		case err != nil:
			return err
		case number == wire.ListItems:
			list.left -= length
			err = r.items.add(list.body, length)
		case number == wire.ObjectMetadata:
			err = list.read(length, func(data []byte) error {
				r.list.ListMeta = metav1.ListMeta{}
				return r.list.ListMeta.Unmarshal(data)
			})
		default:
			err = list.read(length, func([]byte) error { return nil })
		}
		if err != nil {
			return err
		}
	}
	if list.left < 0 {
		return errors.New("its last field is longer than the list")
	}
	return nil
}

// message is the rest of a protobuf message.
type message struct {
	body *bufio.Reader
	left int64
}

func (m *message) ReadByte() (byte, error) {
	m.left--
	return m.body.ReadByte()
}

// field reads the number and length of the next field. Envelopes and lists have only fields with a
// length.
func (m *message) field() (number protowire.Number, length int64, err error) {
	tag, err := binary.ReadUvarint(m)
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	if kind != protowire.BytesType {
		return 0, 0, fmt.Errorf("the field %d has the unexpected wire type %d", number, kind)
	}
	n, err := binary.ReadUvarint(m)
	if err != nil {
		return 0, 0, io.ErrUnexpectedEOF
	}
	if n > uint64(max(m.left, 0)) { //nolint:gosec // not negative
		return 0, 0, fmt.Errorf("the field %d is longer than its message", number)
	}
	return number, int64(n), nil //nolint:gosec // at most left
}

func (m *message) read(length int64, into func([]byte) error) error {
	m.left -= length
	var data bytes.Buffer // grows as data arrives, whatever the length says
	if _, err := io.CopyN(&data, m.body, length); err != nil {
		return io.ErrUnexpectedEOF
	}
	return into(data.Bytes())
}

// itemReader reads items on several goroutines, and keeps their order.
type itemReader struct {
	read    func(item []byte) apiruntime.Object // nil: left out
	slots   chan struct{}                       // one for each goroutine
	running sync.WaitGroup
	batches []*batch
}

// batch is the items that one goroutine reads.
type batch struct {
	data  bytes.Buffer
	ends  []int // of the items in data
	items []apiruntime.Object
	done  bool // all are read
}

// batchSize is the size in bytes from which a batch is read.
const batchSize = 128 << 10

// add reads an item.
func (i *itemReader) add(from io.Reader, length int64) error {
	b := i.batches[len(i.batches)-1]
	if _, err := io.CopyN(&b.data, from, length); err != nil {
		return io.ErrUnexpectedEOF
	}
	if b.ends = append(b.ends, b.data.Len()); b.data.Len() >= batchSize {
		i.start(b)
		i.batches = append(i.batches, &batch{})
	}
	return nil
}

func (i *itemReader) start(b *batch) {
	i.slots <- struct{}{}
	i.running.Go(func() {
		defer func() { <-i.slots }()
		data, begin := b.data.Bytes(), 0
		b.items = make([]apiruntime.Object, 0, len(b.ends))
		for _, end := range b.ends {
			if o := i.read(data[begin:end]); o != nil {
				b.items = append(b.items, o)
			}
			begin = end
		}
		b.data, b.ends, b.done = bytes.Buffer{}, nil, true
	})
}

// wait returns all items, in order.
func (i *itemReader) wait() ([]apiruntime.Object, error) {
	i.start(i.batches[len(i.batches)-1])
	i.running.Wait()
	n := 0
	for _, b := range i.batches {
		if !b.done {
			return nil, fmt.Errorf("a transform or a method UnmarshalJSON %w", run.ErrExited)
		}
		n += len(b.items)
	}
	all := make([]apiruntime.Object, 0, n)
	for _, b := range i.batches {
		all = append(all, b.items...)
	}
	return all, nil
}
