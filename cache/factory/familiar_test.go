// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	k8stesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// These tests cover familiar client-go features on the cache's informers, one each.

// familiar runs a test in a bubble, with a factory over an API server. run runs the cache until the
// test ends.
func familiar(t *testing.T, test func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c := newCache(t, api)
		stop := func() {}
		defer func() { stop() }()
		test(t, api, factory.New(c, nil), func() {
			stop = testkit.Start(t, c.Run)
			synctest.Wait()
		})
	})
}

func TestFamiliar_IndexFuncsAndByIndex(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		for name, data := range map[string]string{"a": "x", "b": "y", "c": "x"} {
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name, data))
		}
		maps := f.Core().V1().ConfigMaps()
		byData := func(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Data["data"]}, nil }
		testkit.NoError(t, maps.Informer().AddIndexers(toolscache.Indexers{"before": byData}))
		run()
		testkit.NoError(t, maps.Informer().AddIndexers(toolscache.Indexers{"after": byData}))
		for _, index := range []string{"before", "after"} {
			objects, err := maps.Informer().GetIndexer().ByIndex(index, "x")
			var names []string
			for _, obj := range objects {
				names = append(names, obj.(*corev1.ConfigMap).Name)
			}
			if slices.Sort(names); err != nil || strings.Join(names, " ") != "a c" {
				t.Errorf("the index %s has %v, %v", index, names, err)
			}
		}
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "z"))
		synctest.Wait()
		testkit.Len(t, testkit.Must(maps.Informer().GetIndexer().IndexKeys("after", "z")), 1, "after a change")
	})
}

func TestFamiliar_NamespaceListers(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		elsewhere := testkit.ConfigMap("b")
		elsewhere.Namespace = "elsewhere"
		api.Put(sim.ConfigMaps, elsewhere)
		maps := f.Core().V1().ConfigMaps().Lister()
		run()
		list, err := maps.ConfigMaps("elsewhere").List(labels.Everything())
		if err != nil || len(list) != 1 || list[0].Name != "b" {
			t.Errorf("got %v, %v", list, err)
		}
		testkit.ErrorSatisfies(t, testkit.Err(maps.ConfigMaps("elsewhere").Get("a")), apierrors.IsNotFound)
		selected, err := maps.List(labels.SelectorFromSet(labels.Set{"name": "a"}))
		if err != nil || len(selected) != 1 || selected[0].Name != "a" {
			t.Errorf("got %v, %v", selected, err)
		}
	})
}

func TestFamiliar_GeneratedListers(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		lister := corelisters.NewConfigMapLister(f.Core().V1().ConfigMaps().TypedInformer().GetIndexer())
		run()
		testkit.Equal(t, testkit.Must(lister.ConfigMaps("default").Get("a")).Name, "a")
		testkit.Equal(t, len(testkit.Must(lister.List(labels.Everything()))), 1, "the object is not listed")
	})
}

// TestFamiliar_ResyncPeriods: each handler is resynced in its own period, whether added before or
// after the start. A handler without a period never is.
func TestFamiliar_ResyncPeriods(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		informer := f.Core().V1().ConfigMaps().Informer()
		counter := func(n *atomic.Int64) toolscache.ResourceEventHandler {
			return toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
				if before.(metav1.Object).GetResourceVersion() == after.(metav1.Object).GetResourceVersion() {
					n.Add(1)
				}
			}}
		}
		var minutely, secondly, never, neverEither atomic.Int64
		testkit.Must(informer.AddEventHandlerWithResyncPeriod(counter(&minutely), time.Minute))
		testkit.Must(informer.AddEventHandler(counter(&never)))
		run()
		period := 10 * time.Second
		testkit.Must(informer.AddEventHandlerWithOptions(counter(&secondly), toolscache.HandlerOptions{ResyncPeriod: &period}))
		testkit.Must(informer.AddEventHandlerWithOptions(counter(&neverEither), toolscache.HandlerOptions{}))
		time.Sleep(10*time.Minute + 30*time.Second)
		// The checks, once a second, add to each period.
		testkit.Between(t, minutely.Load(), 9, 10)
		testkit.Between(t, secondly.Load(), 55, 63)
		testkit.Equal(t, never.Load()+neverEither.Load(), 0, "resyncs of the handlers without a period")
	})
}

// TestFamiliar_LastKnownVersion: a broken watch resumes at its version, and a relist asks for no
// older one.
func TestFamiliar_LastKnownVersion(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Intercept(noStreaming)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		informer := f.Core().V1().ConfigMaps().Informer()
		run()
		time.Sleep(time.Minute)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		synctest.Wait()
		last := informer.LastSyncResourceVersion()
		testkit.Equal(t, last, api.Version())
		asked := func(verb string) string {
			for _, r := range slices.Backward(api.Requests()) {
				if r.Verb == verb && r.Query.Get("limit") != "1" { // a comparison reads one object
					return r.Query.Get("resourceVersion")
				}
			}
			return "nothing"
		}
		listed := func() (n int) {
			for _, r := range api.Requests() {
				if r.Verb == "list" && r.Query.Get("limit") != "1" {
					n++
				}
			}
			return n
		}
		lists := listed()
		api.CutWatches()
		time.Sleep(time.Minute)
		testkit.Equal(t, asked("watch"), last)
		testkit.Equal(t, listed()-lists, 0)
		// An expired version causes a relist.
		var once atomic.Bool
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Streaming() || r.Verb != "watch" {
				return noStreaming(r)
			}
			if once.Swap(true) {
				return nil, nil
			}
			return r.Send(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`)
		})
		api.CutWatches()
		time.Sleep(time.Minute)
		testkit.Equal(t, asked("list"), last)
		testkit.Equal(t, listed()-lists, 1)
	})
}

// TestFamiliar_Tombstones: an object deleted during a gap arrives as DeletedFinalStateUnknown with
// its last known state.
func TestFamiliar_Tombstones(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "last"))
		informer := f.Core().V1().ConfigMaps().Informer()
		var deleted atomic.Value
		testkit.Must(informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { deleted.Store(obj) }}))
		run()
		time.Sleep(time.Minute)
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		api.CutWatches()
		time.Sleep(time.Minute)
		api.Remove(sim.ConfigMaps, "default", "a")
		api.Expire()
		api.Intercept(nil)
		time.Sleep(time.Minute)
		tombstone, ok := deleted.Load().(toolscache.DeletedFinalStateUnknown)
		if !ok || tombstone.Key != "default/a" || tombstone.Obj.(*corev1.ConfigMap).Data["data"] != "last" {
			t.Errorf("got %#v", deleted.Load())
		}
	})
}

func TestFamiliar_ForResource(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		generic, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		testkit.NoError(t, err)
		testkit.Equal(t, generic.Informer().GetIndexer(), f.Core().V1().ConfigMaps().Informer().GetIndexer(), "it is not the accessor's informer")
		run()
		testkit.Equal(t, testkit.Must(generic.Lister().ByNamespace("default").Get("a")).(*corev1.ConfigMap).Name, "a")
		if _, err := generic.Lister().ByNamespace("default").Get("b"); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "configmaps") {
			t.Errorf("got %v", err)
		}
	})
}

func TestFamiliar_WaitForCacheSync(t *testing.T) {
	familiar(t, func(t *testing.T, api *sim.Server, f informers.SharedInformerFactory, run func()) {
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		informer := f.Core().V1().ConfigMaps().Informer()
		seen := testkit.Must(informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}))
		synced := make(chan bool)
		go func() { synced <- toolscache.WaitForCacheSync(t.Context().Done(), informer.HasSynced, seen.HasSynced) }()
		go func() {
			synced <- toolscache.WaitFor(t.Context(), "",
				informer.HasSyncedChecker(), seen.HasSyncedChecker())
		}()
		run()
		for range 2 {
			if !<-synced {
				t.Error("it is not synced")
			}
		}
		for kind, ok := range f.WaitForCacheSync(t.Context().Done()) {
			testkit.Equal(t, ok, true, fmt.Sprintf("%s is not synced", kind))
		}
	})
}

// TestFamiliar_FakeClientsetWithWatchReactor: events of a watch reactor reach handlers and listers.
func TestFamiliar_FakeClientsetWithWatchReactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset()
		watcher := watch.NewFake()
		clientset.PrependWatchReactor("configmaps", k8stesting.DefaultWatchReactor(watcher, nil))
		c := cache.New(nil, cache.Options{})
		f := factory.New(c, clientset)
		maps := f.Core().V1().ConfigMaps()
		events := make(chan string, 10)
		testkit.Must(maps.Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { events <- "add " + obj.(*corev1.ConfigMap).Name },
			UpdateFunc: func(_, obj any) { events <- "update " + obj.(*corev1.ConfigMap).Name },
			DeleteFunc: func(obj any) { events <- "delete " + obj.(*corev1.ConfigMap).Name },
		}))
		stop := testkit.Start(t, c.Run)
		defer stop()
		f.WaitForCacheSync(nil)
		watcher.Add(testkit.ConfigMap("a"))
		watcher.Modify(testkit.ConfigMap("a", "1"))
		synctest.Wait()
		testkit.Equal(t, testkit.Must(maps.Lister().ConfigMaps("default").Get("a")).Data["data"], "1")
		watcher.Delete(testkit.ConfigMap("a", "1"))
		testkit.SlicesEqual(t, []string{<-events, <-events, <-events}, []string{"add a", "update a", "delete a"})
	})
}
