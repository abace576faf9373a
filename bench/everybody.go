// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/setpoint-dev/setpoint/workqueue"
)

// The cost of one add, get and settle with classes, tenants and reasons, as every controller has.
// Metrics are off on both sides. The contestants take turns of 10,000 cycles, so that other load
// affects all.
func everybody(w *report, rounds int) {
	const turns, cycles = 20, 10_000
	contestants := []struct {
		name string
		most float64
		q    queue
	}{
		{"client-go", 0, newClientGo(time.Millisecond, plain)},
		{"setpoint, Interface()", 1.0, interfaced{newFair().Interface()}},
		{"setpoint, direct, a reason each", 1.0, &ours{newFair(), workqueue.AddOptions{Reason: updated}, false}},
		{"setpoint, Interface(), plain FIFO", 0.8, interfaced{newPlain().Interface()}},
	}
	results := make([][]result, len(contestants))
	for round := range rounds * turns {
		for i := range contestants {
			which := (i + round) % len(contestants)
			q := contestants[which].q
			results[which] = append(results[which], timedLightly(cycles, func() {
				for k := range cycles {
					q.Add(keys[k&1023])
					q.Next(never)
				}
			}))
		}
	}
	fmt.Fprintln(w, "add, get, settle; classes, tenants, reasons\ttime\tallocs\tratio\tmost\t\t")
	for i, c := range contestants {
		c.q.Close()
		var ns, allocs, ratios []float64
		for r, res := range results[i] {
			ns, allocs = append(ns, res.ns), append(allocs, res.allocs)
			ratios = append(ratios, res.ns/results[0][r].ns)
		}
		fmt.Fprintf(w, "%s\t%.0f ns\t%.2f\t%s\t\n", c.name, median(ns), median(allocs), bounded(median(ratios), c.most))
	}
}

var updated = workqueue.Reason{Source: "pods", Event: "Update", Object: "default/pod", ResourceVersion: "12345"}

func newFair() *workqueue.Queue[key] {
	return mustQueue(workqueue.Options[key]{
		Classes: workqueue.ThreeClasses(), Tenant: func(k key) string { return k.Namespace },
	})
}

func newPlain() *workqueue.Queue[key] { return mustQueue(workqueue.Options[key]{Reasons: -1}) }

func mustQueue(o workqueue.Options[key]) *workqueue.Queue[key] {
	q, err := workqueue.New(o)
	if err != nil {
		panic(err)
	}
	return q
}
