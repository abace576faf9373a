// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package slots_test

import (
	"fmt"
	"time"

	"github.com/setpoint-dev/setpoint/shard/internal/slots"
)

// A slot moves from one member to another one.
func Example() {
	now, version := time.Unix(0, 0), uint64(100)
	a, b := slots.ID{Name: "pod-a", Term: 90}, slots.ID{Name: "pod-b", Term: 95}
	viewA, viewB := slots.NewView(a, "namespace/name", now), slots.NewView(b, "namespace/name", now)

	// A driver stores the text by compare-and-swap on n.Version(), and all members watch it.
	store := func(n *slots.Assignment, err error) *slots.Assignment {
		check(err)
		text, err := n.Propose(now).Encode()
		check(err)
		version++
		r := slots.Record{Version: version, Manager: slots.Manager, Text: text}
		check(viewA.See(r, now))
		check(viewB.See(r, now))
		known, err := viewA.Assignment()
		check(err)
		return known
	}

	n := store(slots.New("namespace/name", slots.Record{Version: version, Missing: true}, now), nil)
	n = store(n.Listed(version))
	n = store(n.Join(slots.Member{ID: a, Weight: 1}, now))
	n = store(n.Join(slots.Member{ID: b, Weight: 1}, now))

	const slot = 167
	fmt.Printf("slot %d moves from %s to %s\n", slot, n.Slot(slot).Owner, n.Slot(slot).To)

	n = store(n.Ready(b, now, viewB.Tasks().Prepare...)) // pod-b's caches are warm
	viewA.Stop(now, viewA.Tasks().Drain...)              // running Reconciles finish
	n = store(n.Release(viewA, "what pod-a wrote", now, viewA.Tasks().Release...))

	state := n.Slot(slot)
	fmt.Printf("its owner is %s, which waits for %q\n", state.Owner, state.After[0].Written)
	fmt.Println("may pod-a write?", viewA.Owns(slot, state.Epoch), "- may pod-b?", viewB.Owns(slot, state.Epoch))
	// Output:
	// slot 167 moves from pod-a@90 to pod-b@95
	// its owner is pod-b@95, which waits for "what pod-a wrote"
	// may pod-a write? false - may pod-b? true
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
