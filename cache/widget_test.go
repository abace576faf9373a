// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

// Widget is a custom resource, which is read as JSON.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Size int `json:"size"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// WidgetList is a list of Widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Widget `json:"items"`
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]Widget(nil), l.Items...)
	return &c
}

var widgets = sim.Resource{Group: "test.dev", Version: "v1", Kind: "Widget", Name: "widgets", Namespaced: true}

func widgetCache(t *testing.T, api *sim.Server) (*cache.Cache, *broken) {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{Scheme: widgetScheme()})
	testkit.NoError(t, err)
	b := &broken{}
	return cache.New(c, cache.Options{Hook: hook.On(func(e *hook.BrokenObject) { b.add(e.Kind, e.Object, e.Err) }), Storage: storages.Current()}), b
}

func widgetScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(widgetKind.GroupVersion(), &Widget{}, &WidgetList{})
	return scheme
}

var widgetKind = schema.GroupVersionKind{Group: "test.dev", Version: "v1", Kind: "Widget"}

// TestFactory_CustomResource: InformerFor without a constructor returns the cache's informer of a
// custom resource, which shares its LIST and WATCH with the handles. Another type is an error.
func TestFactory_CustomResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(widgets)
		api.Put(widgets, widget("a", int64(1)))
		c, _ := widgetCache(t, api)
		h := cache.For[*Widget](c)
		f := factory.New(c, nil, factory.WithDefaultResync(time.Hour))
		informer := f.InformerFor(&Widget{}, nil)
		testkit.Equal(t, f.InformerFor(&Widget{}, nil), informer, "another informer")
		e := &events{}
		testkit.NoError(t, testkit.Err(informer.AddEventHandler(e.handler())))
		testkit.Equal(t, c.Validate(), nil)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		synctest.Wait()
		testkit.Len(t, informer.GetStore().ListKeys(), 1)
		testkit.Equal(t, e.take(), "add a")
		testkit.Equal(t, api.Watches(), 1)
		time.Sleep(2 * time.Hour)
		testkit.HasPrefix(t, e.take(), "update a", "the resync")
		testkit.Equal(t, f.InformerFor(&corev1.ConfigMap{}, nil), nil, "an informer of an unknown type")
		testkit.ErrorContains(t, c.Validate(), "InformerFor(*v1.ConfigMap): the cache's scheme does not know the type", "Validate says")
	})
}

type broken struct{ events }

func (b *broken) add(kind, object string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, fmt.Sprintf("%s %s: %v", kind, object, err))
}

// widget returns a Widget whose size may not be a number.
func widget(name string, size any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"size": size}}
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// TestS2_S4_OneUndecodable: of a thousand objects, the one that does not fit its Go type is named,
// and the others are kept. It may become valid, break again, and be deleted.
func TestS2_S4_OneUndecodable(t *testing.T) {
	if storages.Current() == cache.Packed {
		t.Skip("see TestF1_S4_OneUndecodable_Packed")
	}
	for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(widgets)
				api.Intercept(a)
				for n := range 999 {
					api.Put(widgets, widget(fmt.Sprint("w", n), int64(n)))
				}
				api.Put(widgets, widget("odd", "large"))
				c, told := widgetCache(t, api)
				h := cache.For[*Widget](c)
				seen, e := subscribe(t, h)
				defer testkit.Start(t, c.Run)()
				synced(t, h)
				testkit.NoError(t, seen.WaitForSync(t.Context()))
				if list, err := h.List(t.Context(), cache.ListOptions{}); len(leftOut(err)) != 1 || len(list) != 999 || strings.Contains(e.take(), "odd") {
					t.Errorf("%d objects, %v", len(list), err)
				}
				odd := func() {
					t.Helper()
					synctest.Wait()
					s := h.State()
					_, err := h.Get(t.Context(), testkit.Key("odd"))
					if s.BrokenCount != 1 || !strings.HasPrefix(s.Broken[0], "default/odd: ") || s.Phase != hook.Synced {
						t.Errorf("got %s", s)
					}
					testkit.Equal(t, apierrors.IsNotFound(err), false)
					testkit.ErrorContains(t, err, "get Widget default/odd: it cannot be decoded: json: cannot unmarshal string")
					testkit.HasPrefix(t, told.take(), "Widget.v1.test.dev default/odd: it cannot be decoded: json: cannot unmarshal string", "the hook was told")
					testkit.NotContains(t, e.take(), " odd", "the subscription got")
				}
				odd()
				good := func(want string) {
					t.Helper()
					api.Put(widgets, widget("odd", int64(5)))
					synctest.Wait()
					testkit.Equal(t, testkit.Must(h.Get(t.Context(), testkit.Key("odd"))).Size, 5)
					testkit.Equal(t, h.State().BrokenCount, 0)
					testkit.Equal(t, e.take(), want, "the subscription got")
				}
				good("add odd")
				// The last known state survives a relist.
				api.Put(widgets, widget("odd", "larger"))
				odd()
				api.Intercept(refuse)
				api.CutWatches()
				synctest.Wait()
				api.Put(widgets, widget("w0", int64(7))) // the watch misses this
				api.Expire()
				api.Intercept(a)
				time.Sleep(10 * time.Second)
				testkit.Equal(t, h.State().Lists, 2)
				// A relist delivers each object as an update.
				testkit.NotContains(t, strings.ReplaceAll(e.take(), "update odd", ""), " odd", "the subscription got")
				odd()
				good("update odd")
				// The delete of an undecodable object has the last known state.
				api.Put(widgets, widget("odd", "largest"))
				odd()
				api.Remove(widgets, "default", "odd")
				synctest.Wait()
				testkit.Equal(t, e.take(), "delete odd", "the subscription got")
				testkit.ErrorSatisfies(t, testkit.Err(h.Get(t.Context(), testkit.Key("odd"))), apierrors.IsNotFound)
				testkit.Equal(t, h.State().BrokenCount, 0, h.State())
				seen.Close()
			})
		})
	}
}
