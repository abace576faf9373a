// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS7_FactoryShares: the factory's listers and the cache's handles share one LIST and one WATCH,
// in either order.
func TestS7_FactoryShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		api.Intercept(noStreaming)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c := newCache(t, api)
		f := factory.New(c, nil)
		maps := cache.For[*corev1.ConfigMap](c)
		lister := f.Core().V1().ConfigMaps().Lister()
		generic, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		testkit.NoError(t, err)
		_ = f.Core().V1().Secrets().Informer()
		secrets := cache.For[*corev1.Secret](c)
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synced(t, secrets)
		synctest.Wait()
		testkit.Equal(t, testkit.Must(lister.ConfigMaps("default").Get("a")).Name, "a")
		testkit.Len(t, testkit.Must(generic.Lister().List(labels.Everything())), 1)
		for _, r := range []sim.Resource{sim.ConfigMaps, sim.Secrets} {
			if lists, watches := api.Count("list", r), api.Watches(); lists != 1 || watches != 2 {
				t.Errorf("%d lists of %s, %d watches in all", lists, r.Name, watches)
			}
		}
		// Pinned: releasing the handles does not stop the factory's informers.
		maps.Release()
		synctest.Wait()
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		synctest.Wait()
		testkit.Equal(t, testkit.Err(lister.ConfigMaps("default").Get("b")), nil, "after the release")
	})
}

// TestFactory_Accessors: every accessor, and ForResource for its resource, returns an informer of
// the cache: as many and the same as client-go's factory.
func TestFactory_Accessors(t *testing.T) {
	api := sim.NewServer()
	c := newCache(t, api)
	f := factory.New(c, nil)
	theirs := informers.NewSharedInformerFactory(nil, 0)
	resources := 0
	for gv, kinds := range allKinds() {
		for kind := range kinds {
			resource, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind))
			if _, err := theirs.ForResource(resource); err != nil {
				testkit.NotEqual(t, testkit.Err(f.ForResource(resource)), nil, fmt.Sprintf("ForResource(%s) gives what client-go does not have", resource))
				continue
			}
			resources++
			testkit.Equal(t, testkit.Err(f.ForResource(resource)), nil)
		}
	}
	testkit.Equal(t, len(c.States()), resources, fmt.Sprintf("%d resources have informers", resources))
	accessors := 0
	each(f, func(informer toolscache.SharedIndexInformer) { accessors++; _ = informer.GetIndexer() })
	if n := len(c.States()); n != accessors || accessors < 60 {
		t.Errorf("%d accessors, %d resources, %d informers; want the same", accessors, resources, n)
	}
	testkit.Equal(t, c.Validate(), nil)
	testkit.Equal(t, len(api.Requests()), 0)
}

func allKinds() map[schema.GroupVersion]map[string]reflect.Type {
	all := map[schema.GroupVersion]map[string]reflect.Type{}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if all[gvk.GroupVersion()] == nil {
			all[gvk.GroupVersion()] = map[string]reflect.Type{}
		}
		all[gvk.GroupVersion()][gvk.Kind] = t
	}
	return all
}

// each calls do with the informer of every accessor.
func each(f informers.SharedInformerFactory, do func(toolscache.SharedIndexInformer)) {
	call := func(v reflect.Value, name string) reflect.Value { return v.MethodByName(name).Call(nil)[0] }
	all := reflect.TypeFor[informers.SharedInformerFactory]()
	for _, group := range methods(all) {
		if m, _ := all.MethodByName(group); m.Type.NumIn() != 0 || m.Type.NumOut() != 1 || m.Type.Out(0).Name() != "Interface" {
			continue
		}
		g := call(reflect.ValueOf(f), group)
		for _, version := range methods(g.Type()) {
			v := call(g, version)
			for _, resource := range methods(v.Type()) {
				do(call(v, resource).Interface().(interface {
					Informer() toolscache.SharedIndexInformer
				}).Informer())
			}
		}
	}
}

func methods(t reflect.Type) []string {
	var names []string
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}

// TestFactory_ForOtherResources: a resource that is not built in is an error with a remedy.
func TestFactory_ForOtherResources(t *testing.T) {
	c := newCache(t, sim.NewServer())
	_, err := factory.New(c, nil).ForResource(schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "widgets"})
	testkit.ErrorContains(t, err, "widgets is not a built-in resource; use cache.For")
}

// TestFactory_InformerFor: a constructor is used once for its Go type, also by the accessors. The
// cache runs and joins its informer.
func TestFactory_InformerFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
		c := newCache(t, api)
		clientset := kubernetes.NewForConfigOrDie(api.Config())
		f := factory.New(c, clientset)
		calls := 0
		var constructor internalinterfaces.NewInformerFunc = func(given kubernetes.Interface, resync time.Duration) toolscache.SharedIndexInformer {
			if calls++; given != clientset || resync != 0 {
				t.Errorf("the constructor is given %v, %s", given, resync)
			}
			return coreinformers.NewFilteredConfigMapInformer(given, "default", resync, toolscache.Indexers{}, func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=a" })
		}
		informer := f.InformerFor(&corev1.ConfigMap{}, constructor)
		testkit.Equal(t, f.InformerFor(&corev1.ConfigMap{}, constructor), informer)
		testkit.Equal(t, calls, 1)
		testkit.Equal(t, len(api.Requests()), 0, "requests before the cache runs")
		maps := cache.For[*corev1.ConfigMap](c)
		adopted := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		stop := testkit.Start(t, c.Run)
		defer stop()
		synced(t, maps)
		synced(t, adopted)
		if list, err := f.Core().V1().ConfigMaps().Lister().List(labels.Everything()); err != nil || len(list) != 1 || list[0].Name != "a" {
			t.Errorf("the accessor's lister says %v, %v", list, err)
		}
		testkit.Len(t, testkit.Must(maps.List(t.Context(), cache.ListOptions{})), 2)
		testkit.Len(t, testkit.Must(adopted.List(t.Context(), cache.ListOptions{Namespace: "default"})), 1)
		var states []string
		for _, s := range c.States() {
			states = append(states, s.String())
		}
		slices.Sort(states)
		testkit.Equal(t, strings.Join(states, "\n"), "ConfigMap.v1 (made by its caller; does not report failures): synced\nConfigMap.v1: synced")
		stop()
		testkit.Equal(t, informer.IsStopped(), true, "after the cache")
		testkit.Equal(t, adopted.State().Phase, hook.Stopped, "after the cache")
		testkit.Equal(t, f.InformerFor(&corev1.Secret{}, func(kubernetes.Interface, time.Duration) toolscache.SharedIndexInformer { return nil }), nil, "there is an informer that nobody made")
		testkit.ErrorContains(t, c.Validate(), "InformerFor(*v1.Secret): the constructor returned no informer", "Validate says")
	})
}

// TestFactory_RunsAlready: an informer that its maker runs is followed, and does not count as
// stopped.
func TestFactory_RunsAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer := coreinformers.NewConfigMapInformer(fake.NewClientset(testkit.ConfigMap("a")), "", 0, toolscache.Indexers{})
		defer runs(informer)()
		synctest.Wait()
		c := cache.New(nil, cache.Options{})
		f := factory.New(c, nil)
		f.InformerFor(&corev1.ConfigMap{}, func(kubernetes.Interface, time.Duration) toolscache.SharedIndexInformer { return informer })
		maps := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		testkit.Equal(t, maps.State().Phase, hook.Synced, maps.State())
		for obj, err := range maps.Owned(t.Context(), "1", cache.ListOptions{}) {
			t.Errorf("owned: %v, %v", obj, err)
		}
	})
}

// TestFactory_WaitForCacheSync: it waits until the requested informers are synced, or the context
// or the cache ends.
func TestFactory_WaitForCacheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		api.Intercept(forbidden(sim.Secrets))
		c := newCache(t, api)
		f := factory.New(c, nil)
		maps, secrets := reflect.TypeFor[*corev1.ConfigMap](), reflect.TypeFor[*corev1.Secret]()
		_ = f.Core().V1().ConfigMaps().Informer()
		waiting := make(chan map[reflect.Type]bool)
		go func() { waiting <- f.WaitForCacheSync(nil) }()
		synctest.Wait()
		select {
		case <-waiting:
			t.Error("it does not wait for the cache to run")
		default:
		}
		stop := testkit.Start(t, c.Run)
		defer stop()
		if got := <-waiting; len(got) != 1 || !got[maps] {
			t.Errorf("got %v", got)
		}
		_ = f.Core().V1().Secrets().Informer()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		result := f.WaitForCacheSyncWithContext(ctx)
		if result.Synced[secrets] || !result.Synced[maps] || result.AsError() == nil || !strings.Contains(result.Err.Error(), "no right to") {
			t.Errorf("got %v", result)
		}
		go func() { waiting <- f.WaitForCacheSync(nil) }()
		stop()
		if got := <-waiting; len(got) != 2 || got[secrets] {
			t.Errorf("after the cache: %v", got)
		}
		testkit.ErrorContains(t, f.WaitForCacheSyncWithContext(t.Context()).Err, "never will be", "after the cache")
	})
}

// TestFactory_HostStartsIt: starting or shutting down the factory, or running its informers, does
// nothing, before and while the cache runs.
func TestFactory_HostStartsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c := newCache(t, api)
		f := factory.New(c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		informer := f.Core().V1().ConfigMaps().Informer()
		host := func() {
			f.Start(ctx.Done())
			f.StartWithContext(ctx)
			go informer.Run(ctx.Done())
			go informer.RunWithContext(ctx)
			f.Shutdown()
			synctest.Wait()
		}
		host()
		testkit.Equal(t, len(api.Requests()), 0, "requests before the cache runs")
		defer testkit.Start(t, c.Run)()
		host()
		cancel()
		f.Shutdown()
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		synctest.Wait()
		testkit.NoError(t, testkit.Err(f.Core().V1().ConfigMaps().Lister().ConfigMaps("default").Get("a")), "the informer stopped with the host's context")
		testkit.Equal(t, informer.IsStopped(), false, "the informer stopped with the host's context")
		testkit.Equal(t, api.Watches(), 1)
	})
}

// TestFactory_SchemeWithout: the client serves kinds that the cache's scheme does not know. Without
// a client, that is an error.
func TestFactory_SchemeWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Deployments)
		api.Put(sim.Deployments, testkit.Deployment("a"))
		backend, err := client.New(api.Config(), client.Options{Scheme: runtime.NewScheme()})
		testkit.NoError(t, err)
		c := cache.New(backend, cache.Options{})
		without := factory.New(c, nil)
		_ = without.Apps().V1().Deployments().Informer()
		testkit.ErrorContains(t, c.Validate(), "*v1.Deployment: give factory.New a client", "Validate says")
		f := factory.New(c, kubernetes.NewForConfigOrDie(api.Config()))
		lister := f.Apps().V1().Deployments().Lister()
		defer testkit.Start(t, c.Run)()
		testkit.Equal(t, f.WaitForCacheSync(nil)[reflect.TypeFor[*appsv1.Deployment]()], true)
		testkit.Equal(t, testkit.Err(lister.Deployments("default").Get("a")), nil)
	})
}

// TestFactory_NoBackend: all handles of a cache without a Backend return an error with a remedy.
// The cache runs.
func TestFactory_NoBackend(t *testing.T) {
	c := cache.New(nil, cache.Options{})
	maps := cache.For[*corev1.ConfigMap](c)
	if c.Validate() == nil {
		t.Fatal("Validate finds nothing")
	}
	testkit.ErrorContains(t, testkit.Err(maps.Get(t.Context(), testkit.Key("a"))), "the cache has no Backend", "Get says")
	testkit.ErrorContains(t, c.Validate(), "give cache.New a client", "Validate says")
	testkit.Start(t, c.Run)()
}

// TestFactory_FakeClientset: without a Backend, the client makes all requests: one LIST and one
// WATCH for each kind.
func TestFactory_FakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(testkit.ConfigMap("a"), testkit.Deployment("a"))
		c := cache.New(nil, cache.Options{})
		f := factory.New(c, clientset)
		lister := f.Core().V1().ConfigMaps().Lister()
		deployments, err := f.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments"))
		testkit.NoError(t, err)
		maps := cache.Adopt[*corev1.ConfigMap](c, f.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
		stop := testkit.Start(t, c.Run)
		defer stop()
		if result := f.WaitForCacheSyncWithContext(t.Context()); result.Err != nil || len(result.Synced) != 2 {
			t.Errorf("got %v", result)
		}
		testkit.Equal(t, testkit.Err(lister.ConfigMaps("default").Get("a")), nil)
		testkit.Equal(t, testkit.Err(deployments.Lister().ByNamespace("default").Get("a")), nil)
		testkit.Equal(t, testkit.Err(f.Apps().V1().Deployments().Lister().Deployments("default").Get("a")), nil)
		testkit.Equal(t, testkit.Must(maps.Get(t.Context(), testkit.Key("a"))).Name, "a")
		synctest.Wait() // for the watches
		testkit.Len(t, clientset.Actions(), 4)
		stop()
		testkit.Equal(t, maps.State().Phase, hook.Stopped, "after the cache", maps.State())
	})
}
