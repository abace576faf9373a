// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
)

// TestShards_HooksOfTheManager get what a group reports, and so do the hooks of Options.Shards.
func TestShards_HooksOfTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		adopted := 0
		count := func() *hook.Shards {
			return &hook.Shards{Adopted: func(s hook.ShardSlots) { adopted += s.Slots }}
		}
		m := newManager(newAPI(), func(o *manager.Options) {
			sharded(o)
			o.Hooks.Shards, o.Shards = count(), &shard.Options{Hooks: count()}
		})
		m.Add(newFake("website", &diary{}))
		stop, result := start(t, m)
		pass(5 * time.Second)
		if adopted != 2*256 || len(m.Shards().Status().Owned) != 256 {
			t.Errorf("the hooks count %d slots; the group has %+v", adopted, m.Shards().Status())
		}
		stop()
		ok(t, result())
	})
}
