// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

// TestS9_ARecoveredInformerHasWhatWasMissed: an informer that failed is stale until its store has
// what changed meanwhile, also if the API server sends that a moment after the answer, or many
// objects at once.
func TestS9_ARecoveredInformerHasWhatWasMissed(t *testing.T) {
	for name, refusal := range map[string]answer{
		"the watch resumes": func(r *sim.Request) (*http.Response, error) {
			if r.Verb != "watch" {
				return nil, nil
			}
			return r.Refuse()
		},
		"it lists again": func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "watch" {
				return r.Fail(http.StatusGone, "too old")
			}
			return r.Fail(http.StatusForbidden, "no right to list")
		},
	} {
		for _, late := range []time.Duration{0, 500 * time.Millisecond} { // after the request
			t.Run(fmt.Sprintf("%s, late by %s", name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.ConfigMaps)
					api.Put(sim.ConfigMaps, testkit.ConfigMap("deleted"))
					cl, err := client.New(api.Config(), client.Options{})
					testkit.NoError(t, err)
					var maps *cache.Handle[*corev1.ConfigMap]
					var mu sync.Mutex
					var got []string
					c := cache.New(cl, cache.Options{Storage: storages.Current(), Hook: hook.On(func(s *hook.InformerState) {
						mu.Lock()
						defer mu.Unlock()
						if s.Err != nil {
							got = append(got, string(s.Phase))
							return
						}
						_, last := maps.Get(t.Context(), testkit.Key("map-999"))
						_, gone := maps.Get(t.Context(), testkit.Key("deleted"))
						got = append(got, fmt.Sprintf("%s, created %t, deleted %t", s.Phase, last == nil, apierrors.IsNotFound(gone)))
					})})
					maps = cache.For[*corev1.ConfigMap](c)
					defer testkit.Start(t, c.Run)()
					synced(t, maps)
					api.Intercept(refusal)
					api.CutWatches()
					time.Sleep(10 * time.Second)
					api.Remove(sim.ConfigMaps, "default", "deleted")
					for n := range 1000 {
						api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprintf("map-%d", n)))
					}
					changed := time.Now()
					time.Sleep(40 * time.Second)
					var first sync.Once
					api.Intercept(func(*sim.Request) (*http.Response, error) {
						first.Do(func() { api.Lag(time.Since(changed) + late) })
						return nil, nil
					})
					time.Sleep(20 * time.Second)
					synctest.Wait()
					if len(got) == 0 || got[0] != "failing" || got[len(got)-1] != "synced, created true, deleted true" {
						t.Errorf("the hook was told %q", got)
					}
				})
			})
		}
	}
}
