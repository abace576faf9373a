// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS4_QuietWithoutBookmarks: an informer of a server without bookmarks is idle. It is compared
// with the server, and its state does not change, whether or not other kinds change.
func TestS4_QuietWithoutBookmarks(t *testing.T) {
	for name, others := range map[string]bool{"nothing changes": false, "other kinds change": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
				dropBookmarks(api)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
				c, told := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				events := record(t, maps)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				synctest.Wait()
				since := maps.State().Since
				for range 60 {
					if time.Sleep(time.Minute); others {
						api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: testkit.ConfigMap("b").ObjectMeta, StringData: map[string]string{"at": time.Now().String()}})
					}
				}
				s := maps.State()
				if s.Phase != hook.Synced || !s.Since.Equal(since) || s.Lists != 1 || told.take() != "" {
					t.Errorf("in an hour: %+v", s)
				}
				testkit.Equal(t, events.take(), "add a")
				testkit.NotEqual(t, others, s.Quiet == 0, fmt.Sprintf("%d watches were replaced, of %d", s.Quiet, s.Watches))
			})
		})
	}
}

// TestS4_QuietAndMute: a watch is open and sends nothing, although there are changes. It is
// replaced, and the hook is told. A watch that has bookmarks is left alone.
func TestS4_QuietAndMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, told := newCache(t, api)
		maps := cache.For[*corev1.ConfigMap](c)
		events := record(t, maps)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		time.Sleep(4 * time.Minute)
		testkit.Equal(t, maps.State().Quiet, 0, "with bookmarks")
		testkit.Equal(t, maps.State().Watches, 1, "with bookmarks")
		events.take()
		mute := make(chan struct{})
		api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) {
			select {
			case <-mute:
				return nil, nil
			default:
				close(mute)
				body, _ := io.Pipe()
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: nil}, nil
			}
		}))
		api.CutWatches()
		time.Sleep(time.Minute)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		time.Sleep(3*time.Minute - time.Second)
		if got := events.take(); got != "add b" && got != "" {
			t.Errorf("got %s", got)
		}
		time.Sleep(10 * time.Second)
		testkit.Equal(t, maps.State().Quiet, 1)
		testkit.Equal(t, maps.State().Lists, 1)
		testkit.Equal(t, maps.State().Phase, hook.Synced)
		testkit.Equal(t, told.take(), "failing, synced", "the hook was told")
		testkit.Equal(t, testkit.Err(maps.Get(t.Context(), testkit.Key("b"))), nil)
	})
}
