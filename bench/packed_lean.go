// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
)

// lean is work by a member of a group, which keeps a fifth of the slots, beside a process that
// keeps all objects.
const lean job = "lean"

const (
	leanDecodedName = "setpoint, decoded, a fifth of the slots"
	leanName        = "setpoint, packed, a fifth of the slots"
)

func leanScene(kind string) scene {
	all := []packedBase{{packedName, 0}, {decodedName, 0}}
	kind = "lean " + kind
	return scene{string(lean), lean, kind, map[string]float64{kind: 1}, []packedRow{
		{"heap after sync", heapFigure, "%.1f MB", 1e-6, all, 0},
		{"bytes of the objects that were kept", bytesFigure, "%.1f MB", 1e-6, all, 0},
		{"decodes, with one Get for each object that is kept", decodesFigure, "%.0f", 1, all[:1], 0},
		{"bytes received for the first sync", receivedFigure, "%.1f MB", 1e-6, all, 0},
		{"bytes received for updates", updatesFigure, "%.1f MB", 1e-6, all, 0},
		{"peak resident memory of the first sync", peakFigure, "%.0f MB", 1e-6, all, 0},
		{"processor time of the first sync, one Get each", cpuFigure, "%.2f s", 1, all, 0},
		{"processor time per update that the API server sends", updateFigure, "%.1f µs", 1e6, all, 0},
		{"processor time per update of a status, dropped by a predicate", droppedFigure, "%.1f µs", 1e6, all, 0},
	}}
}

// leanKind returns a kind whose objects have a controller, and a namespace out of 1000.
func leanKind(k packedKind) *packedKind {
	plain := k.object
	k.name = "lean " + k.name
	k.object = func(i int, s state) runtime.Object {
		o := plain(i, s)
		m, err := meta.Accessor(o)
		if err != nil {
			panic(err) // all kinds have metadata
		}
		m.SetNamespace(sharding.HashField(strconv.Itoa(i%1000)) + "-customer")
		m.SetGeneration(generations[s])
		m.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: benchApps.String(), Kind: "App", Name: "web", UID: "5e0b1c2d-0000-4000-8000-000000000000", Controller: new(true),
		}})
		return o
	}
	return &k
}

// leanSlot is the highest byte of a hash of the namespace.
type leanSlot struct{}

func (leanSlot) Slot(k types.NamespacedName) (uint8, error) {
	slot, err := strconv.ParseUint(sharding.HashField(k.Namespace)[:2], 16, 8)
	return uint8(slot), err
}

// leanJobs keeps a fifth of the slots, among them the one of the last object.
func leanJobs(s cache.Scope) packedJobs {
	return packedJobs{lean: func(ctx context.Context, r *packedRun) error {
		s.Slots = cache.NewSlots(leanSlot{})
		s.Slots.Add(r.slots...)
		return setpointWorks(ctx, r, s)
	}}
}

// counted counts the bytes of responses.
type counted struct {
	http.RoundTripper

	n *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = countedBody{resp.Body, c.n}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser

	n *atomic.Int64
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// share chooses the slots of a lean contestant, and counts its objects.
func (r *packedRun) share() error {
	of := func(i int) (uint8, error) {
		o, err := meta.Accessor(r.kind.object(i, created))
		if err != nil {
			return 0, err
		}
		return leanSlot{}.Slot(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	last, err := of(r.Objects - 1)
	if err != nil {
		return err
	}
	kept := map[uint8]bool{}
	for n := range 51 {
		slot := last + uint8(n)*5 //nolint:gosec // it wraps around
		kept[slot], r.slots = true, append(r.slots, slot)
	}
	if len(kept) != 51 {
		return fmt.Errorf("%d slots", len(kept))
	}
	r.kept = &[4]int64{3: 1}
	for i := range r.Objects {
		slot, err := of(i)
		if err != nil {
			return err
		}
		if !kept[slot] {
			continue
		}
		if r.kept[1]++; i < r.Events {
			r.kept[2]++
		}
	}
	return nil
}
