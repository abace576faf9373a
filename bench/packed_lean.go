// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/shard"
)

// lean is work by a member of a group, which keeps a fifth of the slots, beside a process that
// keeps all objects.
const lean job = "lean"

const (
	leanName        = "setpoint, packed, a fifth of the slots"
	leanDecodedName = "setpoint, decoded, a fifth of the slots"
)

func leanScene(kind string) scene {
	all := []packedBase{{packedName, 0}, {decodedName, 0}}
	return scene{string(lean), lean, kind, map[string]float64{kind: 1}, []packedRow{
		{"heap after sync", heapFigure, "%.1f MB", 1e-6, all, 0},
		{"bytes of the objects that were kept", bytesFigure, "%.1f MB", 1e-6, all, 0},
		{"decodes, with one Get for each object that is kept", decodesFigure, "%.0f", 1, all[:1], 0},
		{"peak resident memory of the first sync", peakFigure, "%.0f MB", 1e-6, all, 0},
		{"processor time of the first sync, one Get each", cpuFigure, "%.2f s", 1, all, 0},
		{"processor time per update that the API server sends", updateFigure, "%.1f µs", 1e6, all, 0},
		{"processor time per update of a status, dropped by a predicate", droppedFigure, "%.1f µs", 1e6, all, 0},
	}}
}

// leanJobs keeps a fifth of the slots, among them the one of the last object.
func leanJobs(storage cache.Storage) packedJobs {
	return packedJobs{lean: func(ctx context.Context, r *packedRun) error {
		slots := cache.NewSlots(shard.ByKey().Slot)
		slots.Add(r.slots...)
		return setpointWorks(ctx, r, cache.Scope{Storage: storage, Slots: slots})
	}}
}

// share chooses the slots of a lean contestant, and counts its objects.
func (r *packedRun) share() error {
	of := func(i int) (uint8, error) {
		o, err := meta.Accessor(r.kind.object(i, created))
		if err != nil {
			return 0, err
		}
		return shard.ByKey().Slot(types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()})
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
