// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS2_RestoredBehindAnswers: a restore is found although the first comparison fails, or was made
// before it, while the restored server's own writes pass the known version over the watch. The
// restore comes shortly before the watch's time limit.
func TestS2_RestoredBehindAnswers(t *testing.T) {
	late := func(api *sim.Server, r *sim.Request) (*http.Response, error) {
		answer, err := r.Forward(api)
		time.Sleep(2 * time.Second)
		return answer, err
	}
	fail := func(code int) func(*sim.Server, *sim.Request) (*http.Response, error) {
		return func(_ *sim.Server, r *sim.Request) (*http.Response, error) {
			return r.Fail(code, "the restored server is not ready")
		}
	}
	type answer = func(*sim.Server, *sim.Request) (*http.Response, error)
	for name, c := range map[string]struct {
		first, others answer // to lists; nil: as usual
		cut           bool   // the watch also breaks before the restore
	}{
		"as usual":          {},
		"429":               {first: fail(http.StatusTooManyRequests), others: fail(http.StatusTooManyRequests)},
		"503":               {first: fail(http.StatusServiceUnavailable), others: fail(http.StatusServiceUnavailable)},
		"500":               {first: fail(http.StatusInternalServerError), others: fail(http.StatusInternalServerError)},
		"403":               {first: fail(http.StatusForbidden), others: fail(http.StatusForbidden)},
		"500 to the second": {others: fail(http.StatusInternalServerError)},
		"from before":       {first: late, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
				maps, told := restorable(t, api, cache.DefaultStorage)
				h := cache.For[*corev1.ConfigMap](maps)
				var ends atomic.Pointer[time.Time] // the time limit of the watch
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if limit, err := time.ParseDuration(r.Query.Get("timeoutSeconds") + "s"); err == nil {
						ends.Store(new(time.Now().Add(limit)))
					}
					return nil, nil
				})
				defer testkit.Start(t, maps.Run)()
				synced(t, h)
				backup := api.Backup()
				for n := range 5 {
					api.Put(sim.ConfigMaps, testkit.ConfigMap("a", fmt.Sprint("undone", n)))
				}
				api.Put(sim.ConfigMaps, testkit.ConfigMap("undone", "1"))
				time.Sleep(20*time.Minute + time.Millisecond)
				time.Sleep(time.Until(*ends.Load()) - 300*time.Millisecond)
				var lists atomic.Int32
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					answer := c.others
					if r.Verb == "list" {
						if lists.Add(1) == 1 {
							answer = c.first
						}
					}
					if r.Verb != "list" || answer == nil {
						return nil, nil
					}
					return answer(api, r)
				})
				if c.cut {
					api.CutWatches()
					time.Sleep(time.Second)
				}
				backup.Restore()
				time.Sleep(3 * time.Second) // the watch goes on
				for n := range 20 {
					api.Put(sim.ConfigMaps, testkit.ConfigMap("b", fmt.Sprint(n)))
				}
				time.Sleep(5 * time.Second)
				api.Intercept(nil)
				time.Sleep(time.Minute)
				testkit.Equal(t, contents(t, h), "a=1 b=19")
				testkit.Equal(t, told.count(), 1)
				testkit.Equal(t, h.Stale(), nil)
			})
		})
	}
}

// TestS4_ComparisonsBackOff: an API server that refuses comparisons is asked less and less often.
func TestS4_ComparisonsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		maps, _ := restorable(t, api, cache.DefaultStorage)
		defer testkit.Start(t, maps.Run)()
		synced(t, cache.For[*corev1.ConfigMap](maps))
		time.Sleep(time.Minute)
		var lists atomic.Int32
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb != "list" {
				return nil, nil
			}
			lists.Add(1)
			return r.Fail(http.StatusTooManyRequests, "it is busy")
		})
		api.CutWatches()
		time.Sleep(time.Hour)
		testkit.Between(t, lists.Load(), 10, 30)
	})
}
