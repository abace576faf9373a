// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// slow is a predicate that takes its time.
type slow struct{}

func (slow) String() string { return "slow" }

func (slow) Keep(handler.Event) bool {
	time.Sleep(10 * time.Millisecond)
	return true
}

// TestShards_AnAdoptionOfAKeptSlotReconcilesEachKey: the handle has its objects, but the source's
// handler has not seen all of them yet. So the ownership may deliver them first, and a key comes
// twice.
func TestShards_AnAdoptionOfAKeptSlotReconcilesEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, objects := cluster(t, sim.ConfigMaps)
		slots := cache.NewSlots(slotFunc(firstLetters))
		kept := cache.ForScope[*corev1.ConfigMap](objects, cache.Scope{Slots: slots})
		r := &rig{t: t, api: api}
		for _, name := range []string{"b1", "b2", "b3", "c1", "c2"} {
			r.put(name)
		}
		r.control = controller.New("lean", controller.Func[types.NamespacedName](r.reconcile), controller.Options{Logger: silent})
		r.control.Watch(source.Kind(kept, handler.Self(), slow{}))
		all := owned.New()
		r.control.Divide(partition{firstLetters, all})
		r.start()
		for _, slot := range []byte("bc") {
			slots.Add(slot)
			ok(t, slots.WaitForSync(t.Context(), slot))
			all.Acquire(ownership(slot, nil))
			keys := strings.Fields(r.seen(time.Second))
			once, want := slices.Compact(slices.Clone(keys)), map[byte]string{'b': "b1 b2 b3", 'c': "c1 c2"}[slot]
			testkit.Equal(t, strings.Join(once, " "), want)
			testkit.AtMost(t, len(keys), 2*len(once), keys)
		}
		r.put("b1")
		r.wantSeen("changed", time.Second, "b1")
	})
}
