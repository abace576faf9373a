// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

func (d *decoder) watchJSON(ctx context.Context, body io.ReadCloser, initial bool) watch.Interface {
	// 500 stands for an unknown cause, as in client-go's own watches.
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "ClientWatchDecoding")
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), &jsonEvents{
		decoder: d, frames: json.NewDecoder(body), body: body, initial: initial, ahead: map[types.NamespacedName]bool{},
	}, reporter)
}

// jsonEvents reads the events of a watch in JSON, one by one.
type jsonEvents struct {
	*decoder

	frames *json.Decoder
	body   io.Closer
	// initial is set until the initial list is complete. Objects missing in it count as deleted.
	initial bool
	most    int                           // size of ahead at which it is pruned
	ahead   map[types.NamespacedName]bool // decoded, perhaps not stored yet
	closed  atomic.Bool
}

// Decode returns the next event with a decodable object. For another delete, it returns the last
// known state, or the metadata if the store does not have that state yet.
func (d *jsonEvents) Decode() (watch.EventType, runtime.Object, error) {
	for {
		var frame struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.frames.Decode(&frame); err != nil {
			if d.closed.Load() {
				err = io.EOF // an error would make the reflector list again
			}
			return "", nil, err
		}
		if frame.Type == watch.Error {
			status := &metav1.Status{}
			return frame.Type, status, utiljson.Unmarshal(frame.Object, status)
		}
		o, err := d.decode(wire.JSON, frame.Object)
		if err == nil {
			if !d.initial && frame.Type != watch.Bookmark { // else the end of the list counts
				d.broken.mended(o)
			}
			d.decoded(o)
			d.initial = d.initial && frame.Type != watch.Bookmark
			return frame.Type, o, nil
		}
		name, known := d.lastKnown(wire.JSON, frame.Object, err)
		if frame.Type == watch.Deleted {
			d.broken.mended(name)
			if known == nil && d.ahead[object.Key(name)] {
				known = d.metadataOf(name.ObjectMeta)
			}
		} else {
			d.broken.misfit(name)
		}
		switch {
		case known != nil && frame.Type == watch.Deleted:
			known.SetResourceVersion(name.ResourceVersion) // the store must reach the delete
			return frame.Type, known, nil
		case known != nil && d.initial:
			return frame.Type, known, nil
		case d.initial:
			continue
		}
		if here := d.bookmark(name.ResourceVersion); here != nil {
			return watch.Bookmark, here, nil
		}
	}
}

// decoded records an object that will be in the store soon.
func (d *jsonEvents) decoded(o object.Object) {
	if len(d.ahead) >= d.most {
		maps.DeleteFunc(d.ahead, func(name types.NamespacedName, _ bool) bool {
			_, there, _ := d.informer.Store().GetByKey(object.Name(name))
			return there
		})
		d.most = max(1024, 2*len(d.ahead))
	}
	d.ahead[object.Key(o)] = true
}

func (d *jsonEvents) Close() {
	d.closed.Store(true)
	_ = d.body.Close()
}
