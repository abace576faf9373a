// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
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
				stop := start(t, c)
				defer stop()
				stopHost := runs(secrets)
				defer stopHost()
				time.Sleep(time.Second)
				put := func() consistency.Write {
					return writtenOf(sim.Secrets, api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "a", Name: "a", Annotations: map[string]string{"at": api.Version()}}}))
				}
				w := put()
				expect(t, d, w, "gap", "at once")
				there := w
				there.Host = "https://elsewhere.test"
				expect(t, d, there, map[bool]string{true: "shown", false: "gap"}[backend], "elsewhere")
				there.Host, there.Resource.Resource = sim.Host, "configmaps"
				expect(t, maps, there, map[bool]string{true: "shown", false: "gap"}[backend], "the usual plural")
				there.Resource.Resource = "mappen"
				expect(t, maps, there, map[bool]string{true: "gap", false: "shown"}[backend], "the true plural")
				n := notify(t, d, w)
				time.Sleep(lag)
				n.called(1, "the watch was there")
				expect(t, d, w, "shown", "the watch was there")
				if !d.Relisted(w) {
					t.Error("who knows what it has listed")
				}
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
					defer start(t, c)()
				}
				h := cache.Adopt[*corev1.Secret](c, informer, cache.AdoptOptions{})
				w := consistency.Write{Resource: schema.GroupResource{Resource: "secrets"}, Namespace: "default", Name: "a", UID: "u", ResourceVersion: "1000"}
				n, m := notify(t, declared(h), w), notify(t, declared(h), w)
				if informer.handlers != 1 {
					t.Errorf("%d handlers", informer.handlers)
				}
				h.Release()
				n.called(1, "released")
				m.called(1, "released")
				if informer.handlers != 0 {
					t.Errorf("%d handlers", informer.handlers)
				}
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
// the type's name, by the kind of an unstructured object in the store, or by the written object.
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
		if err := named.SetTransform(asWidget); err != nil {
			t.Fatal(err)
		}
		typed := cache.Adopt[*corev1.Secret](nil, known, cache.AdoptOptions{})
		untyped := cache.Adopt[*unstructured.Unstructured](nil, unstruct, cache.AdoptOptions{})
		byName := cache.Adopt[*Widget](nil, named, cache.AdoptOptions{})
		for _, i := range []toolscache.SharedIndexInformer{known, unstruct, named} {
			defer runs(i)()
		}
		time.Sleep(time.Second)
		secret := writtenOf(sim.Secrets, api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))
		w := writtenOf(widgets, api.Put(widgets, widget("a", int64(1))))
		// The kind of the unstructured informer is not known yet.
		for _, c := range []struct {
			what               string
			w                  consistency.Write
			secret, raw, named string
		}{{"secret", secret, "gap", "shown", "shown"}, {"widget", w, "shown", "shown", "gap"}} {
			expect(t, declared(typed), c.w, c.secret, "typed, "+c.what)
			expect(t, declared(untyped), c.w, c.raw, "unstructured, "+c.what)
			expect(t, declared(byName), c.w, c.named, "named, "+c.what)
		}
		n := notify(t, declared(typed), secret)
		time.Sleep(lag)
		n.called(1, "the watch was there")
		expect(t, declared(typed, untyped, byName), secret, "shown", "the watch was there")
		expect(t, declared(typed, untyped, byName), w, "shown", "the watch was there")
		// The object in the store decides the kind.
		w = writtenOf(widgets, api.Put(widgets, widget("b", int64(1))))
		expect(t, declared(untyped), w, "gap", "the second one")
		elsewhere := w
		elsewhere.Resource = resource("other.dev", "widgets")
		expect(t, declared(untyped), elsewhere, "shown", "another group")
		expect(t, declared(byName), elsewhere, "gap", "whose group nobody knows")
		// An unusual plural is learned from the written object.
		odd := consistency.Write{Resource: resource("test.dev", "widgetten"), Namespace: "default", Name: "c", UID: "u", ResourceVersion: "1000"}
		expect(t, declared(byName), odd, "shown", "an unusual plural")
		a := odd
		a.Name, a.UID = "a", api.Object(widgets, "default", "a").GetUID()
		expect(t, declared(byName), a, "gap", "the very object")
		expect(t, declared(byName), odd, "gap", "the unusual plural, learned")
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

// TestC6_WatchedIsNotRead: a Reconcile cannot read a handle whose informer is only watched without
// a cache.
func TestC6_WatchedIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		defer start(t, c)()
		synced(t, h)
		other := cache.Adopt[*corev1.ConfigMap](nil, h.Informer(), cache.AdoptOptions{})
		if _, err := h.List(declared(other).Context(t.Context()), cache.ListOptions{}); err == nil {
			t.Error("read")
		}
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, configMap("a")))
		synctest.Wait()
		expect(t, declared(other), w, "shown", "an informer of the cache's own")
		expect(t, declared(other), goneOf(w), "gap", "an informer of the cache's own")
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
