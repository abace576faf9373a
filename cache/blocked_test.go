// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// blocked is an event handler that blocks in its first call.
type blocked struct {
	release chan struct{}
	mu      sync.Mutex
	events  []string // of the object "busy"; guarded by mu
}

func (b *blocked) event(what string, before, after any) {
	<-b.release
	var states []string
	for _, obj := range []any{before, after} {
		if m, ok := obj.(*corev1.ConfigMap); ok && m.Name == "busy" {
			states = append(states, m.Data["data"])
		}
	}
	if states != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, what+" "+strings.Join(states, ">"))
	}
}

// seen returns the events since the last call.
func (b *blocked) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.events = nil }()
	return b.events
}

func (b *blocked) OnAdd(obj any, _ bool)      { b.event("add", nil, obj) }
func (b *blocked) OnUpdate(before, after any) { b.event("update", before, after) }
func (b *blocked) OnDelete(obj any)           { b.event("delete", nil, obj) }

// TestS8_ABlockedHandlerKeepsOneEventOfAnObject: however often an object changes while an event
// handler is blocked, one event of it waits, and no state between is kept in memory. Then the
// handler sees the change from the first state to the last, and S1 holds.
func TestS8_ABlockedHandlerKeepsOneEventOfAnObject(t *testing.T) {
	const changes = 3000
	for name, add := range map[string]func(t *testing.T, api *sim.Server, c *cache.Cache, h toolscache.ResourceEventHandler) (waiting func() int, synced func() bool){
		"a subscription": func(t *testing.T, _ *sim.Server, c *cache.Cache, h toolscache.ResourceEventHandler) (func() int, func() bool) {
			s, err := cache.For[*corev1.ConfigMap](c).Subscribe(h)
			testkit.NoError(t, err)
			return s.Waiting, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return s.WaitForSync(ctx) == nil
			}
		},
		"a client-go handler": func(t *testing.T, _ *sim.Server, c *cache.Cache, h toolscache.ResourceEventHandler) (func() int, func() bool) {
			r, err := informerOf(cache.For[*corev1.ConfigMap](c)).AddEventHandler(h)
			testkit.NoError(t, err)
			return nil, r.HasSynced
		},
		"an adopted informer": func(t *testing.T, api *sim.Server, c *cache.Cache, h toolscache.ResourceEventHandler) (func() int, func() bool) {
			client, err := kubernetes.NewForConfig(api.Config())
			testkit.NoError(t, err)
			f := informers.NewSharedInformerFactory(client, 0)
			s, err := cache.Adopt[*corev1.ConfigMap](c, f.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{}).Subscribe(h)
			testkit.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			f.StartWithContext(ctx)
			t.Cleanup(func() { s.Close(); cancel(); f.Shutdown() })
			return s.Waiting, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("first"))
				c, _ := newCache(t, api)
				b := &blocked{release: make(chan struct{})}
				waiting, synced := add(t, api, c, b)
				stop := testkit.Start(t, c.Run)
				synctest.Wait()
				filler := strings.Repeat("x", 24<<10)
				put := func(i int) {
					m := testkit.ConfigMap("busy", fmt.Sprint(i))
					m.Data["filler"] = filler // the server's history shares it
					api.Put(sim.ConfigMaps, m)
				}
				put(0)
				time.Sleep(time.Minute)
				if synced != nil && synced() {
					t.Error("synced before the handler has seen the first object (S1)")
				}
				before := heap()
				for i := range changes {
					put(i + 1)
					if i%100 == 0 {
						synctest.Wait()
					}
				}
				time.Sleep(time.Minute)
				testkit.AtMost(t, heap()-before, 30<<20)
				if waiting != nil && waiting() != 1 {
					t.Errorf("%d events wait, want 1", waiting())
				}
				close(b.release)
				time.Sleep(time.Minute)
				testkit.SlicesEqual(t, first(b.seen()), []string{fmt.Sprintf("add %d", changes)}, "events")
				if synced != nil && !synced() {
					t.Error("not synced after the handler has seen everything")
				}
				put(-1)
				put(-2)
				synctest.Wait()
				testkit.SlicesEqual(t, first(b.seen()), []string{fmt.Sprintf("update %d>-1", changes), "update -1>-2"}, "a handler that keeps up")
				stop()
			})
		})
	}
}

// first returns at most three events, because a failed check prints all.
func first(events []string) []string { return events[:min(len(events), 3)] }

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // it is small
}
