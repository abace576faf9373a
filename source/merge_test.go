// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// FuzzS8_Merge plays the life of one object, byte by byte, while each event fails. The pending
// event must cover the first state that was delivered and the last one.
func FuzzS8_Merge(f *testing.F) {
	for _, seed := range []string{"c", "u", "cu", "cd", "cdc", "cudcu", "xcx", "eud", "ed", "edc", "exu", "edcd", "edcds", "esc"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, life string) {
		var now handler.Object // the object, or nil
		if life != "" && life[0] == 'e' {
			now = state(0, 0) // it existed before, delivered
		}
		var gone handler.Object // the last state of an object that is deleted
		first := now            // known from before, or the first that came and went
		uid := 0
		var pending pendingEvent
		failed := false
		deliver := func(e handler.Event) {
			u := pendingEvent{Event: e}
			if failed {
				u = merge(pending, u)
			}
			pending, failed = u, true
		}
		for i, step := range life {
			before := now
			switch {
			case step == 'c' && now == nil:
				uid++
				now = state(uid, i)
				deliver(handler.Event{Op: handler.Create, New: now})
			case step == 'u' && now != nil:
				now = state(uid, i)
				deliver(handler.Event{Op: handler.Update, Old: before, New: now})
			case step == 'd' && now != nil, step == 's' && now != nil:
				now, gone = nil, before
				deliver(handler.Event{Op: handler.Delete, Old: before, Stale: step == 's'})
			case step == 'x' && now != nil: // S3: replaced without a watch
				uid++
				now = state(uid, i)
				deliver(handler.Event{Op: handler.Delete, Old: before, Stale: true})
				deliver(handler.Event{Op: handler.Create, New: now})
			}
			if before != nil && first == nil && (now == nil || now.GetUID() != before.GetUID()) {
				first = before
			}
		}
		if !failed {
			return
		}
		want := handler.Event{Old: first, New: now}
		testkit.Equal(t, pending.Old, want.Old)
		testkit.Equal(t, pending.New, want.New)
		last := pending.last // of a delete
		if last == nil {
			last = pending.Old
		}
		if now == nil && last != gone {
			t.Errorf("the last known state is %v, want %v", last, gone)
		}
		op := map[[2]bool]handler.Op{{false, true}: handler.Create, {true, true}: handler.Update, {true, false}: handler.Delete}[[2]bool{want.Old != nil, want.New != nil}]
		testkit.Equal(t, pending.Op, op)
		if pending.Stale && pending.Op != handler.Delete {
			t.Errorf("a stale %s", pending.Op)
		}
	})
}

func state(uid, version int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(fmt.Sprint(uid)), ResourceVersion: fmt.Sprint(version)}}
}

// TestS8_Merge (S8): two events of one object become the one from the oldest state to the newest.
func TestS8_Merge(t *testing.T) {
	a, b, c := state(1, 1), state(1, 2), state(1, 3)
	type event = handler.Event
	for _, m := range []struct {
		name           string
		earlier, later event
		want           pendingEvent
	}{
		{"create, update", event{Op: handler.Create, New: a, Initial: true}, event{Op: handler.Update, Old: a, New: b}, pendingEvent{Event: event{Op: handler.Create, New: b}}},
		{"update, update", event{Op: handler.Update, Old: a, New: b}, event{Op: handler.Update, Old: b, New: c}, pendingEvent{Event: event{Op: handler.Update, Old: a, New: c}}},
		{"update, delete", event{Op: handler.Update, Old: a, New: b}, event{Op: handler.Delete, Old: c, Stale: true}, pendingEvent{Event: event{Op: handler.Delete, Old: a, Stale: true}, last: c}},
		{"create, delete", event{Op: handler.Create, New: a}, event{Op: handler.Delete, Old: b}, pendingEvent{Event: event{Op: handler.Delete, Old: b}}},
		{"delete, create", event{Op: handler.Delete, Old: a, Stale: true}, event{Op: handler.Create, New: b}, pendingEvent{Event: event{Op: handler.Update, Old: a, New: b}}},
		{"resync, delete", event{Op: handler.Update, Old: a, New: a}, event{Op: handler.Delete, Old: b}, pendingEvent{Event: event{Op: handler.Delete, Old: b}}},
		{"update, resync", event{Op: handler.Update, Old: a, New: b}, event{Op: handler.Update, Old: a, New: a}, pendingEvent{Event: event{Op: handler.Update, Old: a, New: b}}},
		{"initial, twice", event{Op: handler.Create, New: a, Initial: true}, event{Op: handler.Create, New: b, Initial: true}, pendingEvent{Event: event{Op: handler.Create, New: b, Initial: true}}},
	} {
		if got := merge(pendingEvent{Event: m.earlier}, pendingEvent{Event: m.later}); got.Event != m.want.Event || got.last != m.want.last || got.replay != nil {
			t.Errorf("%s: got %+v, want %+v", m.name, got, m.want)
		}
	}
}
