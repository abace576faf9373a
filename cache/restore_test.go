// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// restores records the calls of the hook.
type restores struct {
	states

	mu  sync.Mutex
	all []hook.Restored
}

func (r *restores) restored(e hook.Restored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

func (r *restores) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func restorable(t *testing.T, api *sim.Server, s cache.Storage) (*cache.Cache, *restores) {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	told := &restores{}
	return cache.New(c, cache.Options{Hook: hook.Join(
		hook.On(func(e *hook.InformerState) { told.add(*e) }),
		hook.On(func(e *hook.Restored) { told.restored(*e) }),
	), Storage: s}), told
}

// contents are the objects of a handle, as name=data.
func contents(t *testing.T, h *cache.Handle[*corev1.ConfigMap]) string {
	t.Helper()
	list, err := h.List(context.Background(), cache.ListOptions{})
	testkit.NoError(t, err)
	var all []string
	for _, m := range list {
		all = append(all, m.Name+"="+m.Data["data"])
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestS2_S9_ARestoredAPIServer: its data is from an older backup, in every way in which that can
// come to light. The caches then have what the API server has; events tell the difference, and
// deletes arrive. Until then Stale names the problem. One call of the hook reports it.
func TestS2_S9_ARestoredAPIServer(t *testing.T) {
	type bound struct {
		restore func(api *sim.Server, b *sim.Backup)
		within  time.Duration
	}
	for name, how := range map[string]bound{
		"the watches break":                 {func(_ *sim.Server, b *sim.Backup) { b.Restore() }, 20 * time.Second},
		"the versions pass the watch's own": {func(api *sim.Server, b *sim.Backup) { b.Restore(); change(api, 40) }, 20 * time.Second},
		"after an outage": {func(api *sim.Server, b *sim.Backup) {
			api.Intercept(refuse)
			b.Restore()
			time.Sleep(10 * time.Minute)
			api.Intercept(nil)
		}, 20 * time.Second},
		"after an outage, and the versions pass": {func(api *sim.Server, b *sim.Backup) {
			api.Intercept(refuse)
			b.Restore()
			time.Sleep(10 * time.Minute)
			change(api, 40)
			api.Intercept(nil)
		}, 20 * time.Second},
		"too large resource version": {func(api *sim.Server, b *sim.Backup) {
			b.Restore()
			api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) {
				if len(r.Query.Get("resourceVersion")) > 0 && r.Query.Get("resourceVersion") > api.Version() {
					return r.FailWith(tooLarge)
				}
				return nil, nil
			}))
		}, 30 * time.Second},
	} {
		for _, storage := range []cache.Storage{cache.Packed, cache.Decoded} {
			t.Run(name+" "+storage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
					for _, name := range []string{"changed", "deleted", "same"} {
						api.Put(sim.ConfigMaps, testkit.ConfigMap(name, "old"))
					}
					c, told := restorable(t, api, storage)
					maps, secrets := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c)
					metas := cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")})
					events := record(t, maps)
					defer testkit.Start(t, c.Run)()
					synced(t, maps)
					synced(t, secrets)
					synced(t, metas)
					time.Sleep(5 * time.Minute)
					backup := api.Backup()
					api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: testkit.ConfigMap("s").ObjectMeta})
					api.Remove(sim.ConfigMaps, "default", "deleted")
					api.Put(sim.ConfigMaps, testkit.ConfigMap("changed", "new"))
					api.Put(sim.ConfigMaps, testkit.ConfigMap("created", "new"))
					time.Sleep(5 * time.Minute)
					if got := contents(t, maps); got != "changed=new created=new same=old" {
						t.Fatalf("got %s", got)
					}
					events.take()
					how.restore(api, backup)
					time.Sleep(how.within)
					testkit.HasPrefix(t, contents(t, maps), "changed=old deleted=old same=old")
					testkit.NotEqual(t, testkit.Err(metas.Get(t.Context(), testkit.Key("created"))), nil, "the metadata of an object that does not exist")
					testkit.NotEqual(t, testkit.Err(secrets.Get(t.Context(), testkit.Key("s"))), nil, "a Secret that does not exist")
					got := events.take()
					for _, want := range []string{"missed created", "update changed", "add deleted"} {
						testkit.Count(t, got, want, 1)
					}
					testkit.Equal(t, told.count(), 1, "the hook was told")
					for _, h := range []interface{ Stale() error }{maps, secrets, metas} {
						testkit.Equal(t, h.Stale(), nil)
					}
					// It follows the API server from there.
					api.Put(sim.ConfigMaps, testkit.ConfigMap("later", "x"))
					time.Sleep(time.Second)
					testkit.Contains(t, contents(t, maps), "later=x")
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					testkit.Equal(t, maps.CatchUp(ctx), nil)
				})
			})
		}
	}
}

// change makes versions pass.
func change(api *sim.Server, versions int) {
	for n := range versions {
		api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: testkit.ConfigMap("busy").ObjectMeta, StringData: map[string]string{"n": fmt.Sprint(n)}})
	}
}

// TestS9_StaleWhileRestored: Stale names the restore from its confirmation until the kind is listed
// again, and the phase is Failing.
func TestS9_StaleWhileRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		c, told := restorable(t, api, cache.DefaultStorage)
		maps, secrets := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, secrets)
		time.Sleep(5 * time.Minute)
		backup := api.Backup()
		api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: testkit.ConfigMap("s").ObjectMeta})
		time.Sleep(5 * time.Minute)
		backup.Restore()
		for n := 0; told.count() == 0 && n < 3000; n++ {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second) // the other kind is listed after 5 seconds
		err := errors.Join(maps.Stale(), secrets.Stale())
		testkit.ErrorContains(t, err, "was restored from a backup", "Stale returns")
		time.Sleep(20 * time.Second)
		testkit.Equal(t, maps.Stale(), nil)
		testkit.Equal(t, secrets.Stale(), nil)
	})
}

// TestS2_ALaggingReplica: behind a load balancer, one replica answers reads with an older version
// for a while. That is no restored server: nothing is listed again, and no state changes.
func TestS2_ALaggingReplica(t *testing.T) {
	for name, lag := range map[string]time.Duration{"one answer": 0, "for a moment": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, replica := sim.NewServer(sim.ConfigMaps), sim.NewServer(sim.ConfigMaps)
				replica.Put(sim.ConfigMaps, testkit.ConfigMap("a", "old"))
				for n := range 10 {
					api.Put(sim.ConfigMaps, testkit.ConfigMap("a", fmt.Sprint(n)))
				}
				c, told := restorable(t, api, cache.DefaultStorage)
				maps := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				time.Sleep(time.Minute)
				told.take()
				var lagged time.Time
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb != "list" || !lagged.IsZero() && time.Since(lagged) >= lag {
						return nil, nil
					}
					if lagged.IsZero() {
						lagged = time.Now()
					}
					return r.Send(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"2"},"items":[]}`)
				})
				for range 5 {
					api.CutWatches()
					time.Sleep(2 * time.Minute)
				}
				testkit.Equal(t, lagged.IsZero(), false, "the replica was not asked")
				if s := maps.State(); s.Lists != 1 || told.count() != 0 || told.take() != "" || s.Phase != hook.Synced {
					t.Errorf("got %+v, and %d restores", s, told.count())
				}
			})
		})
	}
}

// TestS2_AReplacedCluster: another cluster answers at the same address, with higher versions and
// other uids. If it still has the watch's version, the comparison finds it; if not, the watch
// expires.
func TestS2_AReplacedCluster(t *testing.T) {
	for name, expired := range map[string]bool{"with history": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, other := sim.NewServer(sim.ConfigMaps), sim.NewServer(sim.ConfigMaps, sim.Secrets)
				change(other, 3)
				other.Put(sim.ConfigMaps, testkit.ConfigMap("b", "other"))
				change(other, 60)
				if expired {
					other.Expire()
				}
				for _, name := range []string{"a", "b"} {
					api.Put(sim.ConfigMaps, testkit.ConfigMap(name, "own"))
				}
				var replaced atomic.Bool
				cfg := api.Config()
				cfg.Transport = either{api, other, &replaced}
				cl, err := client.New(cfg, client.Options{})
				testkit.NoError(t, err)
				told := &restores{}
				c := cache.New(cl, cache.Options{Hook: hook.On(func(e *hook.Restored) { told.restored(*e) })})
				maps := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				time.Sleep(5 * time.Minute)
				for range 10 {
					api.Put(sim.ConfigMaps, testkit.ConfigMap("a", time.Now().String()))
				}
				time.Sleep(time.Minute)
				replaced.Store(true)
				api.CutWatches()
				time.Sleep(20 * time.Second)
				testkit.Equal(t, contents(t, maps), "b=other")
				testkit.NotEqual(t, expired, told.count() == 1)
			})
		})
	}
}

// either is a load balancer that moves from one cluster to another.
type either struct {
	one, other http.RoundTripper
	moved      *atomic.Bool
}

func (e either) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.moved.Load() {
		return e.other.RoundTrip(r)
	}
	return e.one.RoundTrip(r)
}

// TestS2_RestoredWhileEventsFlow: the watch stays open and sends the events of the restored server,
// with lower versions and then with higher ones, as through a proxy.
func TestS2_RestoredWhileEventsFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, told := restorable(t, api, cache.DefaultStorage)
		maps := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		for n := range 9 {
			api.Put(sim.ConfigMaps, testkit.ConfigMap("a", fmt.Sprint(n)))
		}
		synced(t, maps)
		time.Sleep(time.Minute)
		backup := api.Backup()
		for n := range 9 {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("new-", n), "x"))
		}
		time.Sleep(time.Minute)
		body, events := io.Pipe()
		api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) {
			api.Intercept(nil)
			r.Header.Set("Accept", "application/json")
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
		}))
		api.CutWatches() // the next one goes through a proxy
		time.Sleep(2 * time.Minute)
		backup.Restore()
		for n := range 20 { // soon they pass the known version
			api.Put(sim.ConfigMaps, testkit.ConfigMap("b", fmt.Sprint(n)))
			data, err := json.Marshal(map[string]any{"type": "ADDED", "object": api.Object(sim.ConfigMaps, "default", "b")})
			testkit.NoError(t, err)
			testkit.NoError(t, testkit.Err(events.Write(data)))
		}
		time.Sleep(time.Minute + 20*time.Second)
		testkit.Equal(t, contents(t, maps), "a=8 b=19")
		testkit.Equal(t, told.count(), 1)
		_ = events.Close()
	})
}

// TestS2_RestoredTwice: also while informers still list again.
func TestS2_RestoredTwice(t *testing.T) {
	for name, pause := range map[string]time.Duration{"while it lists": 4 * time.Second, "later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Pods)
				c, told := restorable(t, api, cache.DefaultStorage)
				maps, secrets, pods := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c), cache.For[*corev1.Pod](c)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				synced(t, secrets)
				synced(t, pods)
				backup := api.Backup()
				for n := range 2 {
					for m := range 10 {
						api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", n, m)))
						api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: testkit.ConfigMap(fmt.Sprint("s", n, m)).ObjectMeta})
					}
					time.Sleep(time.Minute)
					backup.Restore()
					time.Sleep(pause)
				}
				time.Sleep(time.Minute)
				list, err := secrets.List(t.Context(), cache.ListOptions{})
				if got := contents(t, maps); got != "" || len(list) > 0 || err != nil {
					t.Errorf("has %s and %v, %v", got, list, err)
				}
				if told.count() != 2 || c.Validate() != nil || maps.Stale() != nil || secrets.Stale() != nil || pods.Stale() != nil {
					t.Errorf("%d restores; %s, %s", told.count(), maps.State(), pods.State())
				}
			})
		})
	}
}

// TestS2_RestoredAndRestored: a comparison does not keep the next one waiting for long.
func TestS2_RestoredAndRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, told := restorable(t, api, cache.DefaultStorage)
		maps := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		backup := api.Backup()
		for n := range 3 {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", n)))
			time.Sleep(time.Second)
			backup.Restore()
			time.Sleep(15 * time.Second) // 10 until it is compared, 3 until that is confirmed
			testkit.Equal(t, told.count(), n+1)
			testkit.Equal(t, maps.Stale(), nil, n)
			testkit.Equal(t, contents(t, maps), "", n)
		}
	})
}

// TestS10_WhileRestored: while kinds wait for their list after a restore, CatchUp does not list
// them again for each piece of news of the cache.
func TestS10_WhileRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		c, told := restorable(t, api, cache.DefaultStorage)
		maps, secrets := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, secrets)
		backup := api.Backup()
		api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: testkit.ConfigMap("s").ObjectMeta})
		time.Sleep(10 * time.Minute)
		backup.Restore()
		for told.count() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		before := len(api.Requests())
		var all sync.WaitGroup
		for _, h := range []interface{ CatchUp(context.Context) error }{maps, secrets} {
			all.Go(func() {
				testkit.Equal(t, h.CatchUp(t.Context()), nil)
			})
		}
		waits := maps.Stale() != nil || secrets.Stale() != nil
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			_ = maps.CatchUp(ended) // it stops waiting at once, which is news
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		if lists := len(api.Requests()) - before; !waits || lists > 20 {
			t.Errorf("a kind is not listed yet: %t; sent %d requests", waits, lists)
		}
	})
}
