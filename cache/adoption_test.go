// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// run runs f until stop is called, which joins it.
func run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// runs runs an informer as the host program.
func runs(informer toolscache.SharedIndexInformer) (stop func()) {
	return run(func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
}

// keys collects the keys that a controller reconciles.
type keys struct {
	mu   sync.Mutex
	list []string
}

func (k *keys) Reconcile(_ context.Context, key types.NamespacedName) (controller.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, key.String())
	return controller.Result{}, nil
}

func (k *keys) take() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.Sort(k.list)
	s := strings.Join(k.list, " ")
	k.list = nil
	return s
}

// TestAdopt_UnitTest: a controller runs on informers of a fake clientset, without a server.
func TestAdopt_UnitTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(testkit.ConfigMap("a"))
		c := cache.New(nil, cache.Options{})
		f := factory.New(c, clientset)
		maps := cache.Adopt[*corev1.ConfigMap](c, f.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
		var got keys
		ctl := controller.New("test", &got, controller.Options{Logger: slog.New(slog.DiscardHandler)})
		ctl.Watch(source.Kind(maps, handler.Self()))
		defer testkit.Start(t, c.Run)()
		defer run(ctl.Run)()
		synctest.Wait()
		testkit.Equal(t, got.take(), "default/a", "reconciled")
		testkit.NoError(t, testkit.Err(clientset.CoreV1().ConfigMaps("default").Create(t.Context(), testkit.ConfigMap("b"), metav1.CreateOptions{})))
		synctest.Wait()
		testkit.Equal(t, got.take(), "default/b", "reconciled")
	})
}

// TestAdopt_HostsFactory: a controller uses informers of the host's factory and never starts it.
// Its source is ready by its own handler (S1). After the release, the host's handlers continue.
func TestAdopt_HostsFactory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(testkit.ConfigMap("a"))
		host := informers.NewSharedInformerFactory(clientset, 0)
		informer := host.Core().V1().ConfigMaps().Informer()
		var seen sync.Map
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { seen.Store(obj.(*corev1.ConfigMap).Name, true) }})
		testkit.NoError(t, err)
		c := cache.New(nil, cache.Options{})
		maps := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		var got keys
		ctl := controller.New("test", &got, controller.Options{Logger: slog.New(slog.DiscardHandler)})
		src := source.Kind(maps, handler.Self())
		ctl.Watch(src)
		defer testkit.Start(t, c.Run)()
		stopController := run(ctl.Run)
		defer stopController()
		time.Sleep(time.Minute)
		testkit.Equal(t, maps.State().Phase, hook.Syncing, "before the host starts its factory")
		testkit.Len(t, clientset.Actions(), 0, "before the host starts its factory")
		ctx, cancel := context.WithCancel(t.Context())
		defer host.Shutdown()
		defer cancel()
		host.StartWithContext(ctx)
		synctest.Wait()
		testkit.Equal(t, got.take(), "default/a")
		testkit.Equal(t, src.Status().State().Phase, hook.Synced)
		testkit.Equal(t, maps.State().String(), "ConfigMap.v1 (adopted; does not report failures): synced")
		testkit.Equal(t, maps.State().Objects, 1)
		testkit.Equal(t, maps.State().Lists, 0)
		testkit.Equal(t, testkit.Must(maps.Get(t.Context(), testkit.Key("a"))).Name, "a")
		testkit.ErrorSatisfies(t, testkit.Err(maps.Get(t.Context(), testkit.Key("b"))), apierrors.IsNotFound)
		stopController()
		maps.Release()
		synctest.Wait()
		testkit.Equal(t, len(c.States()), 0, "informers after the release")
		_, _ = clientset.CoreV1().ConfigMaps("default").Create(t.Context(), testkit.ConfigMap("b"), metav1.CreateOptions{})
		synctest.Wait()
		if _, ok := seen.Load("b"); !ok || informer.IsStopped() || got.take() != "" {
			t.Error("the release took more than our own handlers")
		}
	})
}

// TestAdopt_OutlivesTheCache: the host's informer, and handles of it, outlive the cache.
func TestAdopt_OutlivesTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := informers.NewSharedInformerFactory(fake.NewClientset(testkit.ConfigMap("a")), 0)
		informer := host.Core().V1().ConfigMaps().Informer()
		c := cache.New(nil, cache.Options{})
		maps := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		stop, stopHost := testkit.Start(t, c.Run), runs(informer)
		defer stopHost()
		synced(t, maps)
		stop()
		testkit.NoError(t, maps.Stale(), "after the end of the cache")
		testkit.Equal(t, informer.IsStopped(), false, "after the end of the cache")
		stopHost()
		testkit.NotEqual(t, maps.Stale(), nil, "after the end of the informer")
		testkit.Equal(t, maps.State().Phase, hook.Stopped, "after the end of the informer")
		testkit.Equal(t, testkit.Err(maps.Get(t.Context(), testkit.Key("a"))), nil, "the last known state")
		testkit.NotEqual(t, testkit.Err(maps.Subscribe(toolscache.ResourceEventHandlerFuncs{})), nil, "a subscription to an informer that has stopped")
	})
}

// TestAdopt_Indexes: NewIndex and Owned work before and after the start, from two caches, with and
// without the host's index of namespaces.
func TestAdopt_Indexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := fcache.NewFakeControllerSource()
		defer sources.Shutdown()
		owned := testkit.ConfigMap("a", "x")
		owned.OwnerReferences = []metav1.OwnerReference{{UID: "1"}}
		sources.Add(owned)
		sources.Add(testkit.ConfigMap("b", "y"))
		informer := toolscache.NewSharedIndexInformer(sources, &corev1.ConfigMap{}, 0, toolscache.Indexers{})
		byData := func(h *cache.Handle[*corev1.ConfigMap]) *cache.Index[*corev1.ConfigMap] {
			return cache.NewIndex(h, "data", func(m *corev1.ConfigMap) []string { return []string{m.Data["data"]} })
		}
		byName := func(h *cache.Handle[*corev1.ConfigMap]) *cache.Index[*corev1.ConfigMap] {
			return cache.NewIndex(h, "data", func(m *corev1.ConfigMap) []string { return []string{m.Name} })
		}
		first := cache.Adopt[*corev1.ConfigMap](cache.New(nil, cache.Options{}), informer, cache.AdoptOptions{})
		before := byData(first)
		defer runs(informer)()
		synced(t, first)
		second := cache.Adopt[*corev1.ConfigMap](cache.New(nil, cache.Options{}), informer, cache.AdoptOptions{})
		after := byName(second)
		for index, value := range map[*cache.Index[*corev1.ConfigMap]]string{before: "x", after: "a"} {
			list, err := index.List(t.Context(), value, cache.ListOptions{Namespace: "default"})
			if err != nil || len(list) != 1 || list[0].Name != "a" {
				t.Errorf("by %s: %v, %v", value, list, err)
			}
		}
		for _, h := range []*cache.Handle[*corev1.ConfigMap]{first, second} {
			n := 0
			for obj, err := range h.Owned(t.Context(), "1", cache.ListOptions{}) {
				if n++; err != nil || obj.Name != "a" {
					t.Errorf("got %v, %v", obj, err)
				}
			}
			testkit.Len(t, testkit.Must(h.List(t.Context(), cache.ListOptions{Namespace: "default"})), 2)
			testkit.Equal(t, n, 1)
		}
	})
}

// TestAdopt_WrongType: an informer of another type is an error, not a panic. The error comes at
// once if the informer has objects, otherwise at the first read and in the state.
func TestAdopt_WrongType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const want = "the informer holds *v1.ConfigMap, not *v1.Secret"
		host := informers.NewSharedInformerFactory(fake.NewClientset(testkit.ConfigMap("a")), 0)
		informer := host.Core().V1().ConfigMaps().Informer()
		c := cache.New(nil, cache.Options{})
		wrong := cache.Adopt[*corev1.Secret](c, informer, cache.AdoptOptions{})
		right := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		src := source.Kind(wrong, handler.Self())
		ctl := controller.New("test", &keys{}, controller.Options{Logger: slog.New(slog.DiscardHandler)})
		ctl.Watch(src)
		testkit.NoError(t, c.Validate(), "before it can be known")
		defer runs(informer)()
		synced(t, wrong)
		for name, read := range map[string]func() error{
			"Get":   func() error { _, err := wrong.Get(t.Context(), testkit.Key("a")); return err },
			"List":  func() error { _, err := wrong.List(t.Context(), cache.ListOptions{}); return err },
			"Owned": func() error { _, err := wrong.Shared().Get(t.Context(), testkit.Key("a")); return err },
		} {
			testkit.ErrorContains(t, read(), want, fmt.Sprintf("%s says", name))
		}
		defer testkit.Start(t, c.Run)()
		defer run(ctl.Run)()
		synctest.Wait()
		testkit.Equal(t, wrong.State().Phase, hook.Failing)
		testkit.ErrorContains(t, wrong.State().Err, want)
		testkit.Contains(t, src.Status().State().String(), want)
		testkit.Equal(t, src.Status().State().Dropped["not a *v1.Secret"], 1)
		testkit.NoError(t, testkit.Err(right.Get(t.Context(), testkit.Key("a"))), "the handle of the right type")
		testkit.Equal(t, right.Stale(), nil, "the handle of the right type")
		late := cache.Adopt[*corev1.Secret](c, informer, cache.AdoptOptions{})
		testkit.ErrorContains(t, testkit.Err(late.Get(t.Context(), testkit.Key("a"))), want)
		testkit.NotEqual(t, c.Validate(), nil)
	})
}

// TestAdopt_Mistakes: Validate and each read report what cannot be adopted.
func TestAdopt_Mistakes(t *testing.T) {
	informer := informers.NewSharedInformerFactory(nil, 0).Core().V1().Pods().Informer()
	var none *struct{ toolscache.SharedIndexInformer }
	c := cache.New(nil, cache.Options{})
	for want, err := range map[string]error{
		"cache.Adopt[*v1.Pod]: the informer is nil":                                                                                   read(cache.Adopt[*corev1.Pod](c, nil, cache.AdoptOptions{})),
		"cache.Adopt[*v1.ConfigMap]: the informer is nil":                                                                             read(cache.Adopt[*corev1.ConfigMap](c, none, cache.AdoptOptions{})),
		"cache.Adopt[*unstructured.Unstructured]: the type has no kind; set cache.AdoptOptions.Kind":                                  read(cache.Adopt[*unstructured.Unstructured](c, informer, cache.AdoptOptions{})),
		"cache.Adopt[*cache_test.Widget]: the scheme does not know the type; add its package with AddToScheme: no kind is registered": read(cache.Adopt[*Widget](c, informer, cache.AdoptOptions{})),
	} {
		testkit.ErrorContains(t, err, want)
		testkit.ErrorContains(t, c.Validate(), want, "Validate says")
	}
}

func read[T cache.Object](h *cache.Handle[T]) error {
	_, err := h.List(context.Background(), cache.ListOptions{})
	return err
}

// TestAdopt_Generated: a generated factory for custom resources.
func TestAdopt_Generated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources := fcache.NewFakeControllerSource()
		defer sources.Shutdown()
		sources.Add(&Widget{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "a", UID: "1", OwnerReferences: []metav1.OwnerReference{{UID: "2"}},
		}})
		informer := toolscache.NewSharedIndexInformer(sources, &Widget{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
		kind := schema.GroupVersionKind{Group: "test.dev", Version: "v1", Kind: "Widget"}
		h := cache.Adopt[*Widget](cache.New(nil, cache.Options{}), toolscache.NewTypedSharedIndexInformer[*Widget](informer),
			cache.AdoptOptions{Kind: kind, Scope: meta.RESTScopeNamespace})
		defer runs(informer)()
		obj, err := h.Get(t.Context(), testkit.Key("a"))
		testkit.NoError(t, err)
		testkit.Equal(t, obj.Name, "a")
		if ref := h.OwnerRef(obj); *ref.APIVersion != "test.dev/v1" || *ref.Kind != "Widget" {
			t.Errorf("got %v", ref)
		}
		for owned, err := range h.Owned(t.Context(), "2", cache.ListOptions{}) {
			testkit.NoError(t, err, "owned")
			testkit.Equal(t, owned.Name, "a", "owned")
		}
		if _, err := h.Get(t.Context(), types.NamespacedName{Name: "a"}); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("a namespaced kind without a namespace: %v", err)
		}
	})
}

// TestAdopt_Dynamic: a dynamic factory.
func TestAdopt_Dynamic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widget := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "default", "name": "a"},
		}}
		resource := schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "widgets"}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "WidgetList"}, widget)
		informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(resource).Informer()
		h := cache.Adopt[*unstructured.Unstructured](cache.New(nil, cache.Options{}), informer, cache.AdoptOptions{Kind: widget.GroupVersionKind()})
		defer runs(informer)()
		testkit.Equal(t, testkit.Must(h.Get(t.Context(), testkit.Key("a"))).GetKind(), "Widget")
		testkit.HasPrefix(t, h.String(), "Widget.v1.test.dev (unstructured, adopted")
	})
}

// TestAdopt_Namespaced: the options or the API server decide whether a kind is namespaced. Until
// then it is an error.
func TestAdopt_Namespaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer := informers.NewSharedInformerFactory(nil, 0).Core().V1().ConfigMaps().Informer()
		alone := cache.Adopt[*corev1.ConfigMap](cache.New(nil, cache.Options{}), informer, cache.AdoptOptions{})
		testkit.ErrorContains(t, testkit.Err(alone.Namespaced()), "set cache.AdoptOptions.Scope")
		for _, scope := range []meta.RESTScope{meta.RESTScopeNamespace, meta.RESTScopeRoot} {
			told := cache.Adopt[*corev1.ConfigMap](cache.New(nil, cache.Options{}), informer, cache.AdoptOptions{Scope: scope})
			namespaced, err := told.Namespaced()
			testkit.NoError(t, err, scope.Name())
			testkit.Equal(t, namespaced, scope == meta.RESTScopeNamespace, scope.Name())
		}
		api := sim.NewServer()
		c, _ := newCache(t, api)
		asks := cache.Adopt[*corev1.ConfigMap](c, informer, cache.AdoptOptions{})
		defer testkit.Start(t, c.Run)()
		time.Sleep(time.Minute)
		testkit.NotEqual(t, testkit.Err(asks.Namespaced()), nil, "it is known of a kind that is not served")
		api.Serve(sim.ConfigMaps)
		time.Sleep(5 * time.Second)
		testkit.Equal(t, testkit.Must(asks.Namespaced()), true)
		n := len(api.Requests())
		time.Sleep(time.Hour)
		testkit.Equal(t, len(api.Requests())-n, 0)
		testkit.Equal(t, api.Count("", sim.ConfigMaps), 0)
	})
}

// TestAdopt_Owner: handler.Owner works with an adopted handle, without a server.
func TestAdopt_Owner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := testkit.ConfigMap("child")
		yes := true
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "parent", UID: "1", Controller: &yes}}
		c := cache.New(nil, cache.Options{})
		f := factory.New(c, fake.NewClientset(child))
		deployments := cache.Adopt[*appsv1.Deployment](c, f.Apps().V1().Deployments().Informer(), cache.AdoptOptions{Scope: meta.RESTScopeNamespace})
		maps := cache.Adopt[*corev1.ConfigMap](c, f.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
		var got keys
		ctl := controller.New("test", &got, controller.Options{Logger: slog.New(slog.DiscardHandler)})
		ctl.Watch(source.Kind(maps, handler.Owner(deployments)))
		defer testkit.Start(t, c.Run)()
		defer run(ctl.Run)()
		synctest.Wait()
		testkit.Equal(t, got.take(), "default/parent", "reconciled")
	})
}

// TestAdopt_Own: adopting the cache's own informer, or one informer twice, gives the same informer.
func TestAdopt_Own(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		c, _ := newCache(t, api)
		f := factory.New(c, nil)
		own := cache.Adopt[*corev1.ConfigMap](c, f.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
		defer testkit.Start(t, c.Run)()
		synced(t, own)
		testkit.Equal(t, own.State().Lists, 1)
		testkit.Equal(t, own.State().Scope, "")
		testkit.Equal(t, api.Watches(), 1)
		own.Release()
		synctest.Wait()
		testkit.Equal(t, len(c.States()), 1, "informers; the factory pins its own")
		host := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Secrets()
		one := cache.Adopt[*corev1.Secret](c, host.Informer(), cache.AdoptOptions{})
		other := cache.Adopt[*corev1.Secret](c, host.TypedInformer(), cache.AdoptOptions{})
		testkit.Equal(t, len(c.States()), 2, "informers")
		one.Release()
		synctest.Wait()
		testkit.Len(t, c.States(), 2)
		testkit.Equal(t, other.State().Phase, hook.Syncing)
		testkit.NotEqual(t, informerOf(other), nil, "the handle does not give its informer")
		other.Release()
		testkit.Equal(t, other.State().Phase, hook.Stopped, "after the release", other.State())
	})
}
