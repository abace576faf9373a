// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// diary is what the handlers of a program saw. Resyncs are only counted.
type diary struct {
	mu      sync.Mutex
	events  []string
	resyncs map[string]int
}

func (d *diary) note(what string, obj any, again bool) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	o := obj.(cache.Object)
	d.mu.Lock()
	defer d.mu.Unlock()
	if again {
		d.resyncs[fmt.Sprintf("%T", obj)]++
		return
	}
	d.events = append(d.events, fmt.Sprintf("%s %T %s/%s %v", what, obj, o.GetNamespace(), o.GetName(), o.GetAnnotations()))
}

func (d *diary) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { d.note("add", obj, false) },
		UpdateFunc: func(before, after any) {
			d.note("update", after, before.(cache.Object).GetResourceVersion() == after.(cache.Object).GetResourceVersion())
		},
		DeleteFunc: func(obj any) { d.note("delete", obj, false) },
	}
}

// program runs a small program on a factory: handlers and listers of two namespaced kinds and a
// cluster-scoped one. It returns what the program saw and listed.
func program(t *testing.T, f informers.SharedInformerFactory, api *sim.Server, run func()) (saw *diary, listed string) {
	t.Helper()
	d := &diary{resyncs: map[string]int{}}
	core := f.Core().V1()
	generic := testkit.Must(f.ForResource(corev1.SchemeGroupVersion.WithResource("secrets")))
	for _, informer := range []toolscache.SharedIndexInformer{core.ConfigMaps().Informer(), generic.Informer(), core.Namespaces().Informer()} {
		testkit.Must(informer.AddEventHandler(d.handler()))
	}
	run()
	f.WaitForCacheSync(t.Context().Done())
	for _, namespace := range []string{"default", "other"} {
		for _, name := range []string{"a", "b"} {
			m := testkit.ConfigMap(name, "new")
			m.Namespace = namespace
			api.Put(sim.ConfigMaps, m)
		}
	}
	synctest.Wait()
	api.Remove(sim.ConfigMaps, "default", "b")
	api.Remove(sim.ConfigMaps, "other", "b")
	time.Sleep(10*time.Hour + 30*time.Minute)
	synctest.Wait()
	var all []string
	for _, m := range testkit.Must(core.ConfigMaps().Lister().List(labels.Everything())) {
		all = append(all, m.Namespace+"/"+m.Name)
	}
	for _, obj := range testkit.Must(generic.Lister().List(labels.Everything())) {
		all = append(all, "secret "+obj.(*corev1.Secret).Namespace)
	}
	for _, n := range testkit.Must(core.Namespaces().Lister().List(labels.Everything())) {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	slices.Sort(d.events)
	return d, strings.Join(all, " ")
}

// sampleAPI has objects in two namespaces.
func sampleAPI() *sim.Server {
	api := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Namespaces)
	for _, namespace := range []string{"default", "other"} {
		api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"name": "a"}}})
		m := testkit.ConfigMap("a")
		m.Namespace = namespace
		api.Put(sim.ConfigMaps, m)
		api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}})
	}
	return api
}

func annotate(obj any) (any, error) {
	o := obj.(metav1.Object)
	if u, ok := obj.(*corev1.ConfigMap); ok { // another object
		u = u.DeepCopy()
		u.Annotations = map[string]string{"by": "transform"}
		return u, nil
	}
	o.SetAnnotations(map[string]string{"by": "transform"})
	return obj, nil
}

// TestOptions_LikeClientGo: with each option, a program sees the same objects and events as with
// client-go's factory. The third form uses the client, because the cache's scheme has no types. In
// the last two, the options are the cache's.
func TestOptions_LikeClientGo(t *testing.T) {
	selectA := func(o *metav1.ListOptions) { o.LabelSelector = "name=a" }
	custom := map[metav1.Object]time.Duration{&corev1.Secret{}: 2 * time.Hour}
	for name, c := range map[string]struct {
		theirs  []informers.SharedInformerOption
		ours    []factory.Option
		cache   cache.Options
		resync  time.Duration
		secrets int // resyncs of each Secret
	}{
		"none":      {},
		"namespace": {theirs: []informers.SharedInformerOption{informers.WithNamespace("other")}, ours: []factory.Option{factory.WithNamespace("other")}, cache: cache.Options{Namespaces: cache.NewSet("other")}},
		"labels":    {theirs: []informers.SharedInformerOption{informers.WithTweakListOptions(selectA)}, ours: []factory.Option{factory.WithTweakListOptions(selectA)}, cache: cache.Options{Labels: labels.SelectorFromSet(labels.Set{"name": "a"})}},
		"transform": {theirs: []informers.SharedInformerOption{informers.WithTransform(annotate)}, ours: []factory.Option{factory.WithTransform(annotate)}, cache: cache.Options{
			Transform: cache.NewTransform("annotate", func(o cache.Object) { o.SetAnnotations(map[string]string{"by": "transform"}) })}},
		"resync": {ours: []factory.Option{factory.WithDefaultResync(time.Hour)}, cache: cache.Options{Resync: time.Hour}, resync: time.Hour, secrets: 10},
		"custom": {theirs: []informers.SharedInformerOption{informers.WithCustomResyncConfig(custom)}, ours: []factory.Option{factory.WithDefaultResync(time.Hour), factory.WithCustomResyncConfig(custom)}, resync: time.Hour, secrets: 5},
		"all": {theirs: []informers.SharedInformerOption{informers.WithNamespace("other"), informers.WithTweakListOptions(selectA), informers.WithTransform(annotate)},
			ours: []factory.Option{factory.WithNamespace("other"), factory.WithTweakListOptions(selectA), factory.WithTransform(annotate)}},
	} {
		t.Run(name, func(t *testing.T) {
			want, wantListed := &diary{}, ""
			synctest.Test(t, func(t *testing.T) {
				api := sampleAPI()
				f := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(api.Config()), c.resync, c.theirs...)
				ctx, stop := context.WithCancel(t.Context())
				defer f.Shutdown()
				defer stop()
				want, wantListed = program(t, f, api, func() { f.Start(ctx.Done()) })
			})
			for form, try := range map[string]struct {
				scheme  *runtime.Scheme
				options []factory.Option
				cache   cache.Options
			}{
				"options": {nil, c.ours, cache.Options{}}, "client": {runtime.NewScheme(), c.ours, cache.Options{}},
				"cache": {nil, nil, c.cache}, "cache and client": {runtime.NewScheme(), nil, c.cache},
			} {
				if strings.HasPrefix(form, "cache") && (name == "custom" || name == "all") {
					continue // only options of the factory
				}
				synctest.Test(t, func(t *testing.T) {
					api := sampleAPI()
					clients := testkit.Must(client.New(api.Config(), client.Options{Scheme: try.scheme}))
					cached := cache.New(clients, try.cache)
					stop := func() {}
					defer func() { stop() }()
					got, listed := program(t, factory.New(cached, kubernetes.NewForConfigOrDie(api.Config()), try.options...), api, func() {
						testkit.Equal(t, cached.Validate(), nil)
						stop = testkit.Start(t, cached.Run)
					})
					got.mu.Lock() // resyncs continue until the stop
					defer got.mu.Unlock()
					testkit.Equal(t, listed, wantListed, form)
					testkit.SlicesEqual(t, got.events, want.events, form)
					if len(want.events) == 0 || !maps.EqualFunc(got.resyncs, want.resyncs, func(a, b int) bool { return a-b <= 2 && b-a <= 2 }) {
						t.Errorf("%s: resyncs %v, want %v of %d events", form, got.resyncs, want.resyncs, len(want.events))
					}
					testkit.Between(t, got.resyncs["*v1.Secret"], 2*c.secrets-2, 2*c.secrets, form)
				})
			}
		})
	}
}

// TestOptions_Shared: a factory of one namespace shares its informers with handles of a cache of
// this namespace, and asks for no other.
func TestOptions_Shared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sampleAPI()
		c := cache.New(testkit.Must(client.New(api.Config(), client.Options{})), cache.Options{Namespaces: cache.NewSet("other")})
		f := factory.New(c, nil)
		maps := cache.For[*corev1.ConfigMap](c)
		lister := f.Core().V1().ConfigMaps().Lister()
		defer testkit.Start(t, c.Run)()
		synced(t, maps)
		synctest.Wait()
		if list, err := lister.List(labels.Everything()); err != nil || len(list) != 1 || list[0].Namespace != "other" {
			t.Errorf("got %v, %v", list, err)
		}
		for _, r := range api.Requests() {
			if r.Verb != "discover" && r.Namespace != "other" {
				t.Errorf("%s in %q", r.Verb, r.Namespace)
			}
		}
		testkit.Equal(t, api.Watches(), 1)
	})
}

// TestOptions_Several: with several namespaces, each accessor of a namespaced kind is an error that
// names the type. Cluster-scoped kinds, other namespaces and constructors work.
func TestOptions_Several(t *testing.T) {
	for name, scheme := range map[string]*runtime.Scheme{"the cache lists": nil, "the client lists": runtime.NewScheme()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sampleAPI()
				c := cache.New(testkit.Must(client.New(api.Config(), client.Options{Scheme: scheme})), cache.Options{Namespaces: cache.NewSet("default", "other")})
				clientset := kubernetes.NewForConfigOrDie(api.Config())
				f := factory.New(c, clientset)
				namespaces := f.Core().V1().Namespaces().Lister()
				secrets := factory.New(c, clientset, factory.WithNamespace("other")).Core().V1().Secrets().Lister()
				testkit.NoError(t, c.Validate())
				testkit.NotEqual(t, f.Core().V1().ConfigMaps().Informer(), nil, "a caller would panic")
				want := "InformerFactory for *v1.ConfigMap: an informer has one namespace or all, but the cache has 2; use cache.For, or"
				if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v", err)
				}
				defer testkit.Start(t, c.Run)()
				f.WaitForCacheSync(nil)
				synctest.Wait()
				// There are the namespace other and four of the system.
				testkit.Len(t, testkit.Must(namespaces.List(labels.Everything())), 5)
				testkit.Len(t, testkit.Must(secrets.List(labels.Everything())), 1)
			})
		})
	}
}

// TestOptions_Wrong: what cannot be mapped onto the cache is one error of Validate.
func TestOptions_Wrong(t *testing.T) {
	tweak := func(change func(*metav1.ListOptions)) factory.Option { return factory.WithTweakListOptions(change) }
	for want, o := range map[string]factory.Option{
		"factory.WithTweakListOptions sets Limit, Continue, which the cache decides; set only": tweak(func(o *metav1.ListOptions) { o.Limit, o.Continue = 5, "x" }),
		`factory.WithTweakListOptions: the LabelSelector "a in b" is invalid: `:                tweak(func(o *metav1.ListOptions) { o.LabelSelector = "a in b" }),
		`factory.WithTweakListOptions: the FieldSelector "a" is invalid: `:                     tweak(func(o *metav1.ListOptions) { o.FieldSelector = "a" }),
		`InformerFactory for *v1.ConfigMap: cache.Scope.Namespaces has "NO NAME", which is`:    factory.WithNamespace("NO NAME"),
	} {
		c := newCache(t, sampleAPI())
		_ = factory.New(c, nil, o).Core().V1().ConfigMaps().Lister()
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestOptions_TransformFails: an object whose transform fails stays in the cache, and the state
// reports the error.
func TestOptions_TransformFails(t *testing.T) {
	for want, transform := range map[string]toolscache.TransformFunc{
		"it does not":                        func(any) (any, error) { return nil, errors.New("it does not") },
		"it returned *v1.Pod instead of *v1": func(any) (any, error) { return &corev1.Pod{}, nil },
		"it returned <nil> instead of *v1":   func(any) (any, error) { return nil, nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			api := sampleAPI()
			c := newCache(t, api)
			f := factory.New(c, nil, factory.WithTransform(transform))
			lister := f.Core().V1().ConfigMaps().Lister()
			defer testkit.Start(t, c.Run)()
			f.WaitForCacheSync(nil)
			testkit.Len(t, testkit.Must(lister.List(labels.Everything())), 2)
			s := c.States()[0]
			if s.BrokenCount != 2 || len(s.Broken) == 0 || !strings.Contains(s.Broken[0], want) {
				t.Errorf("got %v, want %s", s.Broken, want)
			}
		})
	}
}

// TestOptions_InformerFor: a constructor gets the resync period of its type, and its informer the
// transform, as in client-go.
func TestOptions_InformerFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sampleAPI()
		c := newCache(t, api)
		f := factory.New(c, kubernetes.NewForConfigOrDie(api.Config()), factory.WithTransform(annotate), factory.WithDefaultResync(time.Hour),
			factory.WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.ConfigMap{}: time.Minute}))
		informer := f.InformerFor(&corev1.ConfigMap{}, func(client kubernetes.Interface, resync time.Duration) toolscache.SharedIndexInformer {
			testkit.Equal(t, resync, time.Minute, "the constructor is given")
			return coreinformers.NewConfigMapInformer(client, "other", resync, toolscache.Indexers{})
		})
		f.InformerFor(&corev1.Secret{}, func(client kubernetes.Interface, resync time.Duration) toolscache.SharedIndexInformer {
			testkit.Equal(t, resync, time.Hour, "the constructor is given")
			return coreinformers.NewSecretInformer(client, "other", resync, toolscache.Indexers{})
		})
		defer testkit.Start(t, c.Run)()
		f.WaitForCacheSync(nil)
		for _, obj := range informer.GetStore().List() {
			if m := obj.(*corev1.ConfigMap); m.Annotations["by"] != "transform" || m.Namespace != "other" {
				t.Errorf("got %v", m)
			}
		}
		testkit.Equal(t, len(informer.GetStore().List()), 1, "the object is missing")
	})
}
