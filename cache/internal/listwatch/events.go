// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"bufio"
	"io"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// events reads the events of a watch, one by one.
type events struct {
	*decoder

	body io.ReadCloser
	// initial is set until the initial list is complete. Objects missing in it count as deleted.
	initial bool
	frames  streaming.Decoder // nil before the first event
	frame   runtime.Unknown   // the last one
	format  wire.Format
	closed  atomic.Bool
}

// event is an event of a watch.
type event struct {
	action watch.EventType
	// apiVersion and kind are of a protobuf envelope; other objects have their own.
	apiVersion, kind string
	data             []byte // of the object
	bad              error  // of the envelope
}

// Decode returns the next event with an object that can be read. For another delete, it returns the
// last known state, or the object's name.
func (r *events) Decode() (watch.EventType, runtime.Object, error) {
	for {
		e, err := r.next()
		if err != nil {
			if r.closed.Load() {
				err = io.EOF // an error would make the reflector list again
			}
			return "", nil, err
		}
		if e.action == watch.Error {
			status, err := r.status(e)
			return e.action, status, err
		}
		if e.action != watch.Bookmark {
			if o := r.part.skip(r.format, e.data); o != nil {
				return e.action, o, nil
			}
		}
		o, err := r.object(e)
		if err == nil {
			if e.action != watch.Bookmark { // it has no name
				if !r.initial { // else the end of the list counts
					r.broken.mended(o)
				}
			}
			r.initial = r.initial && e.action != watch.Bookmark
			return e.action, o, nil
		}
		if action, o := r.instead(e, err); o != nil {
			return action, o, nil
		}
	}
}

// instead returns the event that stands for one whose object cannot be read, or nil.
func (r *events) instead(e event, why error) (watch.EventType, runtime.Object) {
	name, last := r.lastKnown(r.format, e.data, why)
	switch {
	case e.action == watch.Deleted && name.Name != "":
		r.broken.mended(name)
		if last == nil {
			last = r.metadataOf(name.ObjectMeta)
		}
		return e.action, knownAt(last, name.ResourceVersion)
	case e.action != watch.Bookmark:
		r.broken.misfit(name)
	}
	if r.initial {
		if last == nil {
			return "", nil
		}
		return e.action, known{last}
	}
	if name.ResourceVersion == "" {
		return "", nil
	}
	here := r.Codec.Example() // moves the store past the object
	here.SetResourceVersion(name.ResourceVersion)
	return watch.Bookmark, here
}

func (r *events) next() (e event, err error) {
	if r.frames == nil {
		if err := r.begin(); err != nil {
			return e, err
		}
	}
	frame := &r.frame
	if _, _, err := r.frames.Decode(nil, frame); err != nil {
		return e, err
	}
	action, data, err := wire.Event(r.format, frame.Raw)
	e.action, e.data = watch.EventType(action), data
	if err == nil && r.format == wire.Protobuf {
		e.apiVersion, e.kind, e.data, e.bad = wire.Unwrap(data)
	}
	return e, err
}

// begin waits for the first event. All events have its format.
func (r *events) begin() (err error) {
	body := bufio.NewReaderSize(r.body, 32<<10)
	if r.format, err = formatOf(body); err != nil {
		return err
	}
	var framer runtime.Framer = json.Framer
	if r.format == wire.Protobuf {
		framer = protobuf.LengthDelimitedFramer
	}
	r.frames = streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(body)), frameDecoder{})
	return nil
}

// frameDecoder leaves a frame as it is, until the next one.
type frameDecoder struct{ runtime.Decoder }

func (frameDecoder) Decode(frame []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	into.(*runtime.Unknown).Raw = frame //nolint:forcetypeassert // next gives it one
	return into, nil, nil
}

func (r *events) object(e event) (object.Object, error) {
	if e.bad != nil {
		return nil, e.bad
	}
	if err := r.Codec.Check(e.apiVersion, e.kind); err != nil {
		return nil, err
	}
	return r.Codec.Read(r.format, e.data)
}

func (r *events) status(e event) (*metav1.Status, error) {
	status := &metav1.Status{}
	switch {
	case e.bad != nil:
		return nil, e.bad
	case r.format == wire.Protobuf:
		return status, status.Unmarshal(e.data)
	default:
		return status, utiljson.Unmarshal(e.data, status)
	}
}

func (r *events) Close() {
	r.closed.Store(true)
	_ = r.body.Close()
}
