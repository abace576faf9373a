// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestIntern: objects share their namespace, the keys of labels and annotations, and the kinds of
// owners, in every form.
func TestIntern(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				put := func(name string) {
					m := testkit.ConfigMap(name)
					m.Annotations = map[string]string{"an.annotation": name}
					m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "some.group/v1", Kind: "SomeKind", Name: name, UID: "u"}}
					api.Put(sim.ConfigMaps, m)
				}
				put("a")
				c, _ := newCache(t, api)
				maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: cache.Decoded})
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				runtime.GC() // twice, to clear weak pointers
				runtime.GC()
				put("b")
				synctest.Wait()
				var places [][]*byte
				for m, err := range maps.Shared().All(t.Context(), cache.ListOptions{}) {
					if err != nil || m.Labels["name"] != m.Name || m.Annotations["an.annotation"] != m.Name || m.OwnerReferences[0].Kind != "SomeKind" {
						t.Fatalf("got %v, %v", m, err)
					}
					p := []*byte{unsafe.StringData(m.Namespace), unsafe.StringData(m.OwnerReferences[0].APIVersion), unsafe.StringData(m.OwnerReferences[0].Kind)}
					for k := range m.Labels {
						p = append(p, unsafe.StringData(k))
					}
					for k := range m.Annotations {
						p = append(p, unsafe.StringData(k))
					}
					places = append(places, p)
				}
				for n := range places[0] {
					if len(places) != 2 || places[0][n] != places[1][n] {
						t.Errorf("string %d is there twice", n)
					}
				}
			})
		})
	}
}
