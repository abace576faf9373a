// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// BenchmarkBehind measures Behind without a lag: for a write that one informer shows, one that no
// informer keeps, and one that only the object shows.
func BenchmarkBehind(b *testing.B) {
	api := sim.NewServer(sim.ConfigMaps)
	for n := range 1000 {
		api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", n)))
	}
	c, _ := newCache(b, api)
	h := cache.For[*corev1.ConfigMap](c)
	defer testkit.Start(b, c.Run)()
	synced(b, h)
	d := declared(h)
	stored := writtenOf(sim.ConfigMaps, api.Object(sim.ConfigMaps, "default", "m7"))
	other, gone := stored, stored
	other.Resource.Resource = "secrets"
	gone.Gone, gone.Name = true, "gone"
	for name, w := range map[string]consistency.Write{"shown": stored, "not kept": other, "gone": gone} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if missing, err := d.Behind(w); missing != nil || err != nil {
					b.Fatal(missing, err)
				}
			}
		})
	}
}
