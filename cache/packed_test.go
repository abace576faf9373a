// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// packedCache returns a cache that packs all objects, and a record of its broken objects.
func packedCache(t *testing.T, api *sim.Server) (*cache.Cache, *broken) {
	t.Helper()
	return cacheOf(t, api, cache.Packed)
}

func cacheOf(t *testing.T, api *sim.Server, s cache.Storage) (*cache.Cache, *broken) {
	t.Helper()
	known := widgetScheme()
	testkit.NoError(t, corev1.AddToScheme(known))
	c, err := client.New(api.Config(), client.Options{Scheme: known})
	testkit.NoError(t, err)
	b := &broken{}
	return cache.New(c, cache.Options{Hook: hook.On(func(e *hook.BrokenObject) { b.add(e.Kind, e.Object, e.Err) }), Storage: s}), b
}

// TestF1_SameObjects: every read of a packed handle returns what the same read of a decoded one
// does, typed and unstructured, listed and streamed, created, changed and deleted.
func TestF1_SameObjects(t *testing.T) {
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, widgets)
				api.Intercept(a)
				for n := range 600 { // more than one goroutine decodes
					m := testkit.ConfigMap(fmt.Sprint("m", n), fmt.Sprint(n))
					m.Labels = map[string]string{"even": fmt.Sprint(n%2 == 0)}
					m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "of all"}}
					m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
					api.Put(sim.ConfigMaps, m)
					api.Put(widgets, widget(fmt.Sprint("w", n), int64(n)))
				}
				c, _ := packedCache(t, api)
				for _, storage := range []cache.Storage{cache.Decoded, cache.Packed} {
					cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: storage})
					cache.ForScope[*Widget](c, cache.Scope{Storage: storage})
					cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Storage: storage, Kind: widgetKind})
				}
				defer testkit.Start(t, c.Run)()
				same := func() {
					t.Helper()
					sameReads[*corev1.ConfigMap](t, c, cache.Scope{})
					sameReads[*Widget](t, c, cache.Scope{})
					sameReads[*unstructured.Unstructured](t, c, cache.Scope{Kind: widgetKind})
				}
				same()
				for n := range 100 {
					api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", n), "changed"))
					api.Put(widgets, widget(fmt.Sprint("w", n), int64(-n)))
					api.Remove(widgets, "default", fmt.Sprint("w", 200+n))
				}
				synctest.Wait()
				same()
			})
		})
	}
}

// sameReads compares all reads of two handles, one of each storage.
func sameReads[T cache.Object](t *testing.T, c *cache.Cache, s cache.Scope) {
	t.Helper()
	reads := func(storage cache.Storage) map[string]any {
		s.Storage = storage
		h := cache.ForScope[T](c, s)
		even := cache.NewIndex(h, "even", func(o T) []string { return []string{o.GetLabels()["even"]} })
		synced(t, h)
		got := map[string]any{}
		add := func(read string, list []T, err error) {
			t.Helper()
			testkit.Equal(t, err, nil, read)
			for _, o := range list {
				got[read+" "+o.GetName()] = o
			}
		}
		ctx := t.Context()
		list, err := h.List(ctx, cache.ListOptions{})
		add("list", list, err)
		for _, o := range list {
			one, err := h.Get(ctx, testkit.Key(o.GetName()))
			add("get", []T{one}, err)
			shared, err := h.Shared().Get(ctx, testkit.Key(o.GetName()))
			add("shared", []T{shared}, err)
		}
		list, err = h.List(ctx, cache.ListOptions{Namespace: "default", Labels: labels.SelectorFromSet(labels.Set{"even": "true"})})
		add("selected", list, err)
		list, err = even.List(ctx, "true", cache.ListOptions{})
		add("indexed", list, err)
		list, err = client.Collect(h.Owned(ctx, "of all", cache.ListOptions{}))
		add("owned", list, err)
		for _, o := range informerOf(h).GetIndexer().List() {
			add("informer", []T{o.(T)}, nil)
		}
		return got
	}
	decoded, packed := reads(cache.Decoded), reads(cache.Packed)
	if len(decoded) < 1000 || len(decoded) != len(packed) {
		t.Errorf("%d reads of decoded objects, %d of packed ones", len(decoded), len(packed))
	}
	for _, read := range slices.Sorted(maps.Keys(decoded)) {
		if !reflect.DeepEqual(decoded[read], packed[read]) {
			t.Errorf("%s: decoded %+v, packed %+v", read, decoded[read], packed[read])
			return
		}
	}
}

// TestF1_SameEvents: event handlers of both forms get the same objects in the same events.
func TestF1_SameEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		c, _ := packedCache(t, api)
		logs := map[string]*[]string{}
		listen := func(name string, add func(toolscache.ResourceEventHandler)) {
			log := &[]string{}
			logs[name] = log
			data := func(o any) string { return o.(*corev1.ConfigMap).Name + "=" + o.(*corev1.ConfigMap).Data["data"] }
			add(toolscache.ResourceEventHandlerDetailedFuncs{
				AddFunc:    func(o any, initial bool) { *log = append(*log, fmt.Sprint("add ", data(o), " ", initial)) },
				UpdateFunc: func(o, n any) { *log = append(*log, "update "+data(o)+" to "+data(n)) },
				DeleteFunc: func(o any) {
					missed, ok := o.(toolscache.DeletedFinalStateUnknown)
					if ok {
						o = missed.Obj
					}
					*log = append(*log, fmt.Sprint("delete ", data(o), " ", ok))
				},
			})
		}
		for _, storage := range []cache.Storage{cache.Decoded, cache.Packed} {
			h := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Storage: storage})
			listen(storage.String()+" subscription", func(e toolscache.ResourceEventHandler) {
				s, err := h.Subscribe(e)
				testkit.NoError(t, err)
				t.Cleanup(s.Close)
			})
			listen(storage.String()+" informer", func(e toolscache.ResourceEventHandler) {
				testkit.NoError(t, testkit.Err(informerOf(h).AddEventHandler(e)))
			})
		}
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		api.Put(sim.ConfigMaps, testkit.ConfigMap("b", "1"))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "2"))
		api.Remove(sim.ConfigMaps, "default", "b")
		synctest.Wait()
		api.Intercept(refuse)
		api.CutWatches()
		synctest.Wait()
		api.Remove(sim.ConfigMaps, "default", "a")
		api.Expire()
		api.Intercept(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := "[add a=1 true add b=1 false update a=1 to a=2 delete b=1 false delete a=2 true]"
		for name, log := range logs {
			testkit.Equal(t, fmt.Sprint(*log), want, fmt.Sprintf("the %s got", name))
		}
	})
}

// TestF2_OwnCopies: a reader may change what it got; only Shared returns an object of others.
func TestF2_OwnCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
		c, _ := packedCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		shared, err := h.Shared().Get(t.Context(), testkit.Key("a"))
		testkit.NoError(t, err)
		for range 2 {
			m, err := h.Get(t.Context(), testkit.Key("a"))
			testkit.NoError(t, err)
			testkit.Equal(t, m.Data["data"], "1")
			testkit.NotEqual(t, m, shared)
			m.Data["data"] = "mine"
			list, err := h.List(t.Context(), cache.ListOptions{})
			if err != nil || len(list) != 1 || list[0].Data["data"] != "1" {
				t.Errorf("got %v, %v", list, err)
			}
			list[0].Data["data"] = "mine"
			var read corev1.ConfigMap
			testkit.NoError(t, c.Get(t.Context(), testkit.Key("a"), &read))
			testkit.Equal(t, read.Data["data"], "1")
			testkit.Equal(t, read.Kind, "ConfigMap")
			read.Data["data"] = "mine"
		}
		testkit.Equal(t, shared.Data["data"], "1")
	})
}

// TestF3_ManagedFields: of the fields, the kept bytes lack only managedFields, and these only
// unless the scope keeps them.
func TestF3_ManagedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		m := testkit.ConfigMap("a", "1")
		m.Annotations = map[string]string{"a": "b"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone", Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
		api.Put(sim.ConfigMaps, m)
		c, _ := packedCache(t, api)
		without, with := cache.For[*corev1.ConfigMap](c), cache.ForScope[*corev1.ConfigMap](c, cache.Scope{KeepManagedFields: true})
		defer testkit.Start(t, c.Run)()
		synced(t, without)
		synced(t, with)
		a, err := without.Get(t.Context(), testkit.Key("a"))
		b, wrong := with.Get(t.Context(), testkit.Key("a"))
		if err != nil || wrong != nil || a.ManagedFields != nil || len(b.ManagedFields) != 1 {
			t.Fatalf("got %v, %v; %v, %v", a, err, b, wrong)
		}
		b.ManagedFields = nil
		testkit.DeepEqual(t, a, b, "without its managed fields")
		if few, more := without.State(), with.State(); few.Bytes == 0 || few.Bytes >= more.Bytes || few.Storage != "packed" || few.Decodes != 1 {
			t.Errorf("got %+v and %+v", few, more)
		}
	})
}

// TestF1_S4_OneUndecodable_Packed (F1, and S2): an object that does not fit its Go type is found
// when it is read, named, and left out of lists. Its events arrive. It may become valid again.
func TestF1_S4_OneUndecodable_Packed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Put(widgets, widget("odd", "large"))
		api.Put(widgets, widget("even", int64(2)))
		c, told := packedCache(t, api)
		h := cache.For[*Widget](c)
		seen, e := subscribe(t, h)
		defer seen.Close()
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		reads := func(valid, left int, event string) {
			t.Helper()
			synctest.Wait()
			testkit.Equal(t, e.take(), event, "the subscription got")
			list, err := h.List(t.Context(), cache.ListOptions{})
			testkit.Len(t, leftOut(err), left)
			testkit.Len(t, list, valid)
			for _, err := range h.All(t.Context(), cache.ListOptions{}) {
				if err == nil {
					valid--
				}
			}
			testkit.Equal(t, valid, 0, "objects are missing")
		}
		bad := func() {
			t.Helper()
			_, err := h.Get(t.Context(), testkit.Key("odd"))
			const why = "it cannot be decoded: json: cannot unmarshal string"
			testkit.Equal(t, apierrors.IsNotFound(err), false)
			testkit.ErrorContains(t, err, "get Widget default/odd: "+why)
			if s := h.State(); s.BrokenCount != 1 || !strings.HasPrefix(s.Broken[0], "default/odd: "+why) || s.Phase != hook.Synced {
				t.Errorf("got %s", s)
			}
			testkit.HasPrefix(t, told.take(), "Widget.v1.test.dev default/odd: "+why, "the hook was told")
		}
		reads(1, 1, "add even")
		bad()
		api.Put(widgets, widget("odd", int64(1)))
		reads(2, 0, "add odd")
		testkit.Equal(t, h.State().BrokenCount, 0, h.State())
		api.Put(widgets, widget("odd", "larger"))
		reads(1, 1, "")
		bad()
		api.Remove(widgets, "default", "odd")
		reads(1, 0, "delete odd")
		testkit.ErrorSatisfies(t, testkit.Err(h.Get(t.Context(), testkit.Key("odd"))), apierrors.IsNotFound)
		testkit.Equal(t, h.State().BrokenCount, 0, h.State())
	})
}
