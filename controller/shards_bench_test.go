// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// BenchmarkShards measures a Reconcile that only adds the next key, with and without shards: a key
// is mapped to its slot twice, and its ownership begins and ends.
func BenchmarkShards(b *testing.B) {
	var keys [1024]types.NamespacedName
	for i := range keys {
		keys[i] = types.NamespacedName{Namespace: "default", Name: "web-" + strconv.Itoa(i)}
	}
	for name, sharded := range map[string]bool{"off": false, "on": true} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			left := b.N
			var c *controller.Controller[types.NamespacedName]
			c = controller.New("bench", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				if left--; left <= 0 {
					cancel()
				} else {
					c.Queue().Add(keys[left&1023])
				}
				return controller.Result{}, nil
			}), controller.Options{Logger: silent})
			if sharded {
				all := owned.New()
				c.Divide(partition{shard.ByKey().Slot, all})
				for slot := range term.Slots {
					all.Acquire(&owned.Slot{Number: uint8(slot), Term: fence.New(fence.Token{}, time.Now(), time.Hour)})
				}
				first := newPartial(keys[0])
				close(first.may)
				c.Watch(first)
			} else {
				c.Queue().Add(keys[0])
			}
			b.ReportAllocs()
			b.ResetTimer()
			testkit.NoError(b, c.Run(ctx))
		})
	}
}
