// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// scraped returns a cache, and a function that returns its informers' states as metrics get them.
func scraped(t *testing.T, api *sim.Server) (c *cache.Cache, scrape func() map[string]hook.InformerState) {
	t.Helper()
	cl, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	informers := make(chan func() []hook.InformerState, 1)
	c = cache.New(cl, cache.Options{Hook: hook.On(func(s *hook.CacheStarted) { informers <- s.Informers })})
	return c, func() map[string]hook.InformerState {
		byStorage := map[string]hook.InformerState{}
		of := <-informers
		informers <- of
		for _, s := range of() {
			byStorage[s.Storage] = s
		}
		return byStorage
	}
}

// TestScrape_CountsManyObjectsOnceAMinute: a scrape of metrics does not walk over a large store
// each time.
func TestScrape_CountsManyObjectsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		const first = 10_001
		for n := range first {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint(n), "1"))
		}
		c, scrape := scraped(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: cache.Packed})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		objects := func(want int) {
			t.Helper()
			s := scrape()["packed"]
			testkit.Equal(t, s.Objects, want, "a scrape counts objects")
			testkit.Between(t, s.Bytes/int64(s.Objects), 50, 500)
		}
		objects(first)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("later", "1"))
		time.Sleep(50 * time.Second)
		objects(first)
		testkit.Equal(t, h.State().Objects, first+1, "State counts objects")
		time.Sleep(10 * time.Second)
		objects(first + 1)
	})
}

// TestScrape: a scrape counts few objects each time, and estimates the bytes of packed ones only.
func TestScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		c, scrape := scraped(t, api)
		decoded, packed := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: cache.Decoded}), cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: cache.Packed})
		defer testkit.Start(t, c.Run)()
		synced(t, decoded)
		synced(t, packed)
		for objects := 1; objects < 4; objects++ {
			s := scrape()
			if d := s["decoded"]; d.Objects != objects || d.Bytes != 0 || d.Decodes != 0 {
				t.Errorf("decoded: %d objects, %d bytes, %d decodes", d.Objects, d.Bytes, d.Decodes)
			}
			if p := s["packed"]; p.Objects != objects || p.Bytes != packed.State().Bytes || p.Bytes == 0 {
				t.Errorf("packed: %d objects, %d bytes", p.Objects, p.Bytes)
			}
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint(objects), "1"))
			synctest.Wait()
		}
		testkit.NotEqual(t, decoded.State().Bytes, 0, "State does not estimate decoded objects")
	})
}

// TestState_OfSeveralInformers: a handle with several informers has their sums.
func TestState_OfSeveralInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		for _, namespace := range []string{"a", "b"} {
			m := testkit.ConfigMap("m", "1")
			m.Namespace, m.Labels = namespace, map[string]string{"app": "web"}
			api.Put(sim.ConfigMaps, m)
		}
		c, _ := scraped(t, api)
		h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{
			Storage: cache.Packed, Namespaces: cache.NewSet("a", "b"), Labels: labels.SelectorFromSet(labels.Set{"app": "web"}),
		})
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		testkit.Len(t, testkit.Must(h.List(t.Context(), cache.ListOptions{})), 2)
		s := h.State()
		if s.Storage != "packed" || s.Decodes != 2 || s.Objects != 2 || s.Selection != "labels app=web" || s.Scope != "labels app=web, namespaces a b" {
			t.Errorf("got %+v", s)
		}
		for _, one := range c.States() {
			if one.Storage != "packed" || one.Decodes != 1 || one.Objects != 1 || one.Selection != "labels app=web" {
				t.Errorf("got %+v", one)
			}
		}
	})
}
