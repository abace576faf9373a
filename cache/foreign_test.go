// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestC6_Adopted: a write waits for the host's informers, too. With a Backend, the API server
// decides the resource and the address. Without one, it is the usual plural at any server.
func TestC6_Adopted(t *testing.T) {
	for name, backend := range map[string]bool{"with a backend": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				renamed := sim.ConfigMaps
				renamed.Name = "mappen"
				api := sim.NewServer(sim.Secrets, renamed)
				api.Lag(lag)
				factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0)
				c := cache.New(nil, cache.Options{})
				if backend {
					c, _ = newCache(t, api)
				}
				secrets := factory.Core().V1().Secrets().Informer()
				d := declared(cache.Adopt[*corev1.Secret](c, secrets, cache.AdoptOptions{}))
				maps := declared(cache.Adopt[*corev1.ConfigMap](c, factory.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{Scope: meta.RESTScopeNamespace}))
				stop := testkit.Start(t, c.Run)
				defer stop()
				stopHost := runs(secrets)
				defer stopHost()
				time.Sleep(time.Second)
				put := func() consistency.Write {
					return writtenOf(sim.Secrets, api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "a", Name: "a", Annotations: map[string]string{"at": api.Version()}}}))
				}
				w := put()
				expect(t, d, w, "behind", "at once")
				there := w
				there.Host = "https://elsewhere.test"
				expect(t, d, there, map[bool]string{true: "shown", false: "behind"}[backend], "elsewhere")
				there.Host, there.Resource.Resource = sim.Host, "configmaps"
				expect(t, maps, there, map[bool]string{true: "shown", false: "behind"}[backend], "the usual plural")
				there.Resource.Resource = "mappen"
				expect(t, maps, there, map[bool]string{true: "behind", false: "shown"}[backend], "the true plural")
				n := notify(t, d, w)
				time.Sleep(lag)
				n.called(1, "the watch was there")
				expect(t, d, w, "shown", "the watch was there")
				testkit.Equal(t, d.Relisted(w), true, "who knows what it has listed")
				w = put()
				n = notify(t, d, w)
				if backend { // the cache ends first
					stop()
				} else {
					stopHost()
					n.called(0, "the host's informer does not say that it has stopped")
					n.cancel()
					expect(t, d, w, "unclear", "it has stopped")
					n = &waiting{t: t}
					n.calls.Store(1)
				}
				n.called(1, "the end")
			})
		})
	}
}

// TestC6_AdoptedIsLeftAlone: the last release removes the event handler from the host's informer.
func TestC6_AdoptedIsLeftAlone(t *testing.T) {
	for name, running := range map[string]bool{"the cache runs": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Secrets)
				factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0)
				informer := &counting{SharedIndexInformer: factory.Core().V1().Secrets().Informer()}
				defer runs(informer)()
				time.Sleep(time.Second)
				c := cache.New(nil, cache.Options{})
				if running {
					defer testkit.Start(t, c.Run)()
				}
				h := cache.Adopt[*corev1.Secret](c, informer, cache.AdoptOptions{})
				w := consistency.Write{Resource: schema.GroupResource{Resource: "secrets"}, Namespace: "default", Name: "a", UID: "u", ResourceVersion: "1000"}
				n, m := notify(t, declared(h), w), notify(t, declared(h), w)
				testkit.Equal(t, informer.handlers, 1)
				h.Release()
				n.called(1, "released")
				m.called(1, "released")
				testkit.Equal(t, informer.handlers, 0)
			})
		})
	}
}

// counting counts event handlers.
type counting struct {
	toolscache.SharedIndexInformer

	handlers int
}

func (c *counting) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	c.handlers++
	return c.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
}

func (c *counting) RemoveEventHandler(r toolscache.ResourceEventHandlerRegistration) error {
	c.handlers--
	return c.SharedIndexInformer.RemoveEventHandler(r)
}

// TestC6_Watched: an informer without a cache is recognized by its type if client-go knows it, by
// the given kind, or by the written object.
func TestC6_Watched(t *testing.T) {
	resource := func(group, name string) schema.GroupResource {
		return schema.GroupResource{Group: group, Resource: name}
	}
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Secrets, widgets)
		api.Lag(lag)
		factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0)
		raw := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(api.Config()), 0)
		gvr := schema.GroupVersionResource{Group: "test.dev", Version: "v1", Resource: "widgets"}
		known, unstruct := factory.Core().V1().Secrets().Informer(), raw.ForResource(gvr).Informer()
		named := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(api.Config()), 0).ForResource(gvr).Informer()
		testkit.NoError(t, named.SetTransform(asWidget))
		typed := cache.Adopt[*corev1.Secret](nil, known, cache.AdoptOptions{})
		untyped := cache.Adopt[*unstructured.Unstructured](nil, unstruct, cache.AdoptOptions{Kind: widgetKind})
		byName := cache.Adopt[cache.Object](nil, named, cache.AdoptOptions{Kind: schema.GroupVersionKind{Kind: "Widget"}})
		for _, i := range []toolscache.SharedIndexInformer{known, unstruct, named} {
			defer runs(i)()
		}
		time.Sleep(time.Second)
		secret := writtenOf(sim.Secrets, api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))
		w := writtenOf(widgets, api.Put(widgets, widget("a", int64(1))))
		for _, c := range []struct {
			what               string
			w                  consistency.Write
			secret, raw, named string
		}{{"secret", secret, "behind", "shown", "shown"}, {"widget", w, "shown", "behind", "behind"}} {
			expect(t, declared(typed), c.w, c.secret, "typed, "+c.what)
			expect(t, declared(untyped), c.w, c.raw, "unstructured, "+c.what)
			expect(t, declared(byName), c.w, c.named, "named, "+c.what)
		}
		n := notify(t, declared(typed), secret)
		time.Sleep(lag)
		n.called(1, "the watch was there")
		expect(t, declared(typed, untyped, byName), secret, "shown", "the watch was there")
		expect(t, declared(typed, untyped, byName), w, "shown", "the watch was there")
		w = writtenOf(widgets, api.Put(widgets, widget("b", int64(1))))
		expect(t, declared(untyped), w, "behind", "the second one")
		elsewhere := w
		elsewhere.Resource = resource("other.dev", "widgets")
		expect(t, declared(untyped), elsewhere, "shown", "another group")
		expect(t, declared(byName), elsewhere, "behind", "whose group nobody knows")
		// An unusual plural is learned from the written object.
		odd := consistency.Write{Resource: resource("test.dev", "widgetten"), Namespace: "default", Name: "c", UID: "u", ResourceVersion: "1000"}
		expect(t, declared(byName), odd, "shown", "an unusual plural")
		a := odd
		a.Name, a.UID = "a", api.Object(widgets, "default", "a").GetUID()
		expect(t, declared(byName), a, "behind", "the very object")
		expect(t, declared(byName), odd, "behind", "the unusual plural, learned")
		// After the release, no write waits for it.
		n = notify(t, declared(byName), odd)
		byName.Release()
		n.called(1, "released")
		expect(t, declared(byName), odd, "shown", "released")
		typed.Release()
		untyped.Release()
		none := cache.Adopt[*corev1.Secret](nil, nil, cache.AdoptOptions{})
		none.Release()
		expect(t, declared(none), w, "shown", "nothing is declared")
	})
}

// TestC6_WithoutAStore: no write waits for an event source without a store, and its handle says so.
// Each read is an error, and not an empty list.
func TestC6_WithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0).Core().V1().ConfigMaps().Informer()
		defer runs(informer)()
		c, _ := newCache(t, api)
		for _, c := range []*cache.Cache{nil, c} {
			h := cache.Adopt[*corev1.ConfigMap](c, struct{ cache.EventSource }{informer}, cache.AdoptOptions{})
			testkit.Equal(t, h.WaitForSync(t.Context()), nil)
			testkit.Equal(t, h.Stale(), nil)
			const want = "without a store and without read-your-writes"
			for name, said := range map[string]string{"String": h.String(), "State": h.State().String(), "List": fmt.Sprint(read(h))} {
				testkit.Contains(t, said, want, fmt.Sprintf("%s says", name))
			}
			testkit.ErrorContains(t, testkit.Err(h.Get(declared(h).Context(t.Context()), testkit.Key("a"))), want, "Get says")
			testkit.ErrorContains(t, h.CatchUp(t.Context()), want, "CatchUp says")
			late := consistency.Write{Host: sim.Host, Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: "a", UID: "u", ResourceVersion: "1000"}
			expect(t, declared(h), late, "shown", "nobody can look into it")
			h.Release()
		}
	})
}

// TestAdopt_WithoutACache: a handle without a cache can be read, and reports its own mistakes.
func TestAdopt_WithoutACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		owned := testkit.ConfigMap("a")
		owned.OwnerReferences = []metav1.OwnerReference{{UID: "1"}}
		api.Put(sim.ConfigMaps, owned)
		informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0).Core().V1().ConfigMaps().Informer()
		defer runs(informer)()
		h := cache.Adopt[*corev1.ConfigMap](nil, informer, cache.AdoptOptions{})
		testkit.Len(t, testkit.Must(h.List(t.Context(), cache.ListOptions{Namespace: "default"})), 1)
		testkit.Equal(t, h.Validate(), nil)
		for obj, err := range h.Owned(t.Context(), "1", cache.ListOptions{}) {
			testkit.NoError(t, err)
			testkit.Equal(t, obj.Name, "a")
		}
	})
	informer := informers.NewSharedInformerFactory(nil, 0).Core().V1().Pods().Informer()
	for want, err := range map[string]error{
		"the informer is nil":               cache.Adopt[*corev1.Pod](nil, nil, cache.AdoptOptions{}).Validate(),
		"cache.AdoptOptions.Run needs":      cache.Adopt[*corev1.Pod](nil, informer, cache.AdoptOptions{Run: true}).Validate(),
		"set cache.AdoptOptions.Kind":       cache.Adopt[*Widget](nil, informer, cache.AdoptOptions{}).Validate(),
		"T must be a pointer to an API":     cache.Adopt[cache.Object](nil, informer, cache.AdoptOptions{}).Validate(),
		"set cache.AdoptOptions.Kind, with": cache.Adopt[*unstructured.Unstructured](nil, informer, cache.AdoptOptions{}).Validate(),
	} {
		testkit.ErrorContains(t, err, want)
	}
	testkit.Equal(t, cache.Adopt[*corev1.Pod](cache.New(nil, cache.Options{}), nil, cache.AdoptOptions{}).Validate(), nil, "the cache reports it, and so does the handle")
}

// TestC6_WatchedIsNotRead: a Reconcile cannot read a handle when its controller declares another
// one of the same informer.
func TestC6_WatchedIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		other := cache.Adopt[*corev1.ConfigMap](nil, informerOf(h), cache.AdoptOptions{})
		testkit.NotEqual(t, testkit.Err(h.List(declared(other).Context(t.Context()), cache.ListOptions{})), nil)
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		synctest.Wait()
		expect(t, declared(other), w, "shown", "an informer of the cache's own")
		expect(t, declared(other), goneOf(w), "behind", "an informer of the cache's own")
		other.Release()
	})
}

// asWidget is a transform.
func asWidget(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	w := &Widget{}
	return w, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, w)
}

// TestAdopt_SyncedMeanwhile: an informer that is synced just after it was asked is not waited for.
// Its cache does not learn of it from anything else.
func TestAdopt_SyncedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(api.Config()), 0).Core().V1().ConfigMaps().Informer()
		defer runs(informer)()
		synctest.Wait()
		late := &syncedLate{SharedIndexInformer: informer}
		h := cache.Adopt[*corev1.ConfigMap](nil, late, cache.AdoptOptions{})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.Settled(ctx); err != nil || time.Since(began) > 0 || !late.asked {
			t.Errorf("got %v after %s, asked: %v", err, time.Since(began), late.asked)
		}
	})
}

// syncedLate is synced from the second question on.
type syncedLate struct {
	toolscache.SharedIndexInformer

	asked bool
}

func (s *syncedLate) HasSynced() bool {
	was := s.asked
	s.asked = true
	return was && s.SharedIndexInformer.HasSynced()
}
