// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// BenchmarkNoop measures a Reconcile that only adds the next key, from queue to queue. Package
// bench compares.
func BenchmarkNoop(b *testing.B) {
	for name, o := range map[string]controller.Options{
		"plain": {}, "deadline": {Deadline: time.Hour}, "interrupt": {MaxInterrupts: 1},
	} {
		b.Run(name, func(b *testing.B) {
			o.Logger = silent
			var c *controller.Controller[int]
			ctx, cancel := context.WithCancel(b.Context())
			left := b.N
			c = controller.New("bench", controller.Func[int](func(_ context.Context, key int) (controller.Result, error) {
				if left--; left <= 0 {
					cancel()
				} else {
					c.Queue().Add((key + 1) & 1023)
				}
				return controller.Result{}, nil
			}), o)
			c.Queue().Add(0)
			b.ReportAllocs()
			b.ResetTimer()
			testkit.NoError(b, c.Run(ctx))
		})
	}
}

// BenchmarkHistory measures what the history of a Reconcile costs: of keys in random order, while
// each Reconcile touches 16 KiB of memory, as one does that reads an object.
func BenchmarkHistory(b *testing.B) {
	for _, n := range []int{16, 100_000} {
		keys := make([]types.NamespacedName, n)
		for i := range keys {
			keys[i] = types.NamespacedName{Namespace: fmt.Sprint("namespace-", i%100), Name: fmt.Sprint("name-", i)}
		}
		rand.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for _, limit := range []int64{0, controller.DefaultHistory} {
			b.Run(fmt.Sprintf("keys=%d/limit=%d", n, limit), func(b *testing.B) { inTurn(b, keys, limit) })
		}
	}
}

// inTurn reconciles keys one after the other.
func inTurn(b *testing.B, keys []types.NamespacedName, limit int64) {
	const page = 16 << 10
	memory := make([]byte, 64<<20)
	var names []string
	for _, key := range keys {
		names = append(names, key.String())
	}
	var c *controller.Controller[types.NamespacedName]
	ctx, cancel := context.WithCancel(b.Context())
	left, next, at := b.N+2*len(keys), 0, 0
	add := func() {
		reason := workqueue.Reason{Source: "Kind of Pods", Event: "Update", Object: names[next], ResourceVersion: "123456"}
		c.Queue().AddWith(keys[next], workqueue.AddOptions{Reason: reason})
		next = (next + 1) % len(keys)
	}
	c = controller.New("bench", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
		if left--; left == b.N { // each key has two Reconciles
			b.ResetTimer()
		}
		for i := 0; i < page; i += 64 {
			memory[at+i]++
		}
		if at = (at + page) % len(memory); left <= 0 {
			cancel()
		} else {
			add()
		}
		return controller.Result{}, nil
	}), controller.Options{Logger: silent, History: controller.NewHistory(limit)})
	add()
	b.ReportAllocs()
	testkit.NoError(b, c.Run(ctx))
}
