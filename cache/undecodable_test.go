// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// widgetsIn runs a test for each storage, with streamed and plain lists.
func widgetsIn(t *testing.T, test func(t *testing.T, api *sim.Server, c *cache.Cache)) {
	for _, storage := range []cache.Storage{cache.Decoded, cache.Packed} {
		for name, a := range map[string]answer{"streaming": nil, "listing": noStreaming(nil)} {
			t.Run(storage.String()+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(widgets)
					api.Intercept(a)
					c, err := client.New(api.Config(), client.Options{Scheme: widgetScheme()})
					testkit.NoError(t, err)
					test(t, api, cache.New(c, cache.Options{Storage: storage}))
				})
			})
		}
	}
}

// owned returns a widget with a label and an owner.
func owned(name string, size any, color, owner string) *unstructured.Unstructured {
	u := widget(name, size)
	u.SetLabels(map[string]string{"color": color})
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: owner, UID: types.UID(owner)}})
	return u
}

func namesOf(list []*Widget) (names []string) {
	for _, w := range list {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return names
}

// leftOut returns the objects that an error names.
func leftOut(err error) (names []string) {
	var u *cache.UndecodableError
	if errors.As(err, &u) {
		for _, o := range u.Objects {
			names = append(names, o.Name)
		}
	}
	return names
}

// readsOf returns all reads of several widgets, with and without copies.
func readsOf(c *cache.Cache, h *cache.Handle[*Widget], size *cache.Index[*Widget]) map[string]func(t *testing.T, o cache.ListOptions) ([]*Widget, error) {
	return map[string]func(t *testing.T, o cache.ListOptions) ([]*Widget, error){
		"List":        func(t *testing.T, o cache.ListOptions) ([]*Widget, error) { return h.List(t.Context(), o) },
		"shared List": func(t *testing.T, o cache.ListOptions) ([]*Widget, error) { return h.Shared().List(t.Context(), o) },
		"All": func(t *testing.T, o cache.ListOptions) ([]*Widget, error) {
			return client.Collect(h.All(t.Context(), o))
		},
		"Owned": func(t *testing.T, o cache.ListOptions) ([]*Widget, error) {
			return client.Collect(h.Owned(t.Context(), "owner", o))
		},
		"Index.List": func(t *testing.T, o cache.ListOptions) ([]*Widget, error) { return size.List(t.Context(), "1", o) },
		"Index.All": func(t *testing.T, o cache.ListOptions) ([]*Widget, error) {
			return client.Collect(size.All(t.Context(), "1", o))
		},
		"Cache.List": func(t *testing.T, o cache.ListOptions) ([]*Widget, error) {
			var into WidgetList
			err := c.List(t.Context(), &into, o)
			var list []*Widget
			for n := range into.Items {
				list = append(list, &into.Items[n])
			}
			return list, err
		},
	}
}

func sizes(h *cache.Handle[*Widget]) *cache.Index[*Widget] {
	return cache.NewIndex(h, "size", func(w *Widget) []string { return []string{fmt.Sprint(w.Size)} })
}

// TestF1_LimitCountsReadableObjects: an object that cannot be decoded does not count against a
// limit. A read that reaches its limit is complete.
func TestF1_LimitCountsReadableObjects(t *testing.T) {
	widgetsIn(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		for n := range 20 {
			api.Put(widgets, owned(fmt.Sprint("bad-", n), "large", "red", "owner"))
		}
		for _, name := range []string{"a", "b"} {
			api.Put(widgets, owned(name, int64(1), "red", "owner"))
		}
		h := cache.For[*Widget](c)
		all := readsOf(c, h, sizes(h))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for name, read := range all {
			for limit := range 5 {
				for range 3 {
					list, err := read(t, cache.ListOptions{Limit: limit})
					if want := 2; limit == 1 {
						if len(list) != 1 || err != nil {
							t.Fatalf("%s with limit 1: got %q, %v", name, namesOf(list), err)
						}
					} else if limit == 2 {
						if len(list) != want || err != nil {
							t.Fatalf("%s with limit 2: got %q, %v", name, namesOf(list), err)
						}
					} else if len(list) != want || len(leftOut(err)) != 20 {
						t.Fatalf("%s with limit %d: got %q, %v", name, limit, namesOf(list), err)
					}
				}
			}
		}
	})
}

// TestS9_UndecodableIsAnError (F1): a read of several objects returns those that fit their Go type,
// and an error that names the others in its selection: in both storages, whether or not they have
// fit before, until they fit again or are deleted.
func TestS9_UndecodableIsAnError(t *testing.T) {
	widgetsIn(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		api.Put(widgets, owned("good", int64(1), "red", "owner"))
		api.Put(widgets, owned("blue", int64(1), "blue", "owner"))
		api.Put(widgets, owned("never", "large", "red", "owner"))
		api.Put(widgets, owned("late", int64(1), "red", "owner"))
		far := owned("far", int64(1), "red", "owner")
		far.SetNamespace("far")
		api.Put(widgets, far)
		h := cache.For[*Widget](c)
		all := readsOf(c, h, sizes(h))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		blue := labels.SelectorFromSet(labels.Set{"color": "blue"})
		check := func(bad []string, good ...string) {
			t.Helper()
			synctest.Wait()
			slices.Sort(good)
			for name, read := range all {
				list, err := read(t, cache.ListOptions{Namespace: "default"})
				testkit.SlicesEqual(t, leftOut(err), bad, name)
				testkit.SlicesEqual(t, namesOf(list), good, name)
				testkit.Equal(t, err == nil, len(bad) == 0, name, err)
				for _, o := range []cache.ListOptions{{Namespace: "far"}, {Labels: blue}} {
					list, err := read(t, o)
					testkit.NoError(t, err, name, "of another selection")
					testkit.Len(t, list, 1, name, "of another selection")
				}
			}
			testkit.DeepEqual(t, testkit.Must(client.Collect(h.Owned(t.Context(), "other", cache.ListOptions{}))), []*Widget(nil), "of another owner")
			for _, name := range bad {
				_, err := h.Get(t.Context(), testkit.Key(name))
				testkit.SlicesEqual(t, leftOut(err), []string{name}, "Get")
				testkit.HasPrefix(t, fmt.Sprint(err), "get Widget default/"+name+": it cannot be decoded: json: ", "Get")
			}
			testkit.Equal(t, h.State().BrokenCount, len(bad), h.State())
			testkit.Equal(t, h.Stale(), nil)
		}
		check([]string{"never"}, "good", "blue", "late")
		api.Put(widgets, owned("late", "large", "red", "owner"))
		check([]string{"late", "never"}, "good", "blue")
		relist(t, api)
		check([]string{"late", "never"}, "good", "blue")
		api.Put(widgets, owned("never", int64(1), "red", "owner"))
		check([]string{"late"}, "good", "blue", "never")
		api.Remove(widgets, "default", "late")
		check(nil, "good", "blue", "never")
		api.Put(widgets, owned("late", "larger", "red", "owner"))
		check([]string{"late"}, "good", "blue", "never")
		api.Remove(widgets, "default", "late")
		check(nil, "good", "blue", "never")
		testkit.ErrorSatisfies(t, testkit.Err(h.Get(t.Context(), testkit.Key("late"))), apierrors.IsNotFound)
	})
}

// relist makes the watches miss something, so that all informers list.
func relist(t *testing.T, api *sim.Server) {
	t.Helper()
	var up atomic.Bool
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if !up.Load() {
			return r.Refuse()
		}
		return nil, nil
	})
	api.CutWatches()
	synctest.Wait()
	api.Expire()
	up.Store(true)
	time.Sleep(time.Minute)
	synctest.Wait()
}

// TestS9_ErrorUntilStored: the error stays until the store has the object, which comes later than
// the event that makes the object fit again.
func TestS9_ErrorUntilStored(t *testing.T) {
	widgetsIn(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		block := make(chan struct{})
		h := cache.ForScope[*Widget](c, cache.Scope{Transform: cache.NewTransform("slow", func(w *Widget) {
			if w.Size == 5 {
				<-block
			}
		})})
		api.Put(widgets, widget("odd", "large"))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		wantOdd := func() {
			t.Helper()
			synctest.Wait()
			if list, err := h.List(t.Context(), cache.ListOptions{}); len(list) != 0 || !slices.Equal(leftOut(err), []string{"odd"}) {
				t.Errorf("got %q, %v", namesOf(list), err)
			}
			testkit.Len(t, leftOut(testkit.Err(h.Get(t.Context(), testkit.Key("odd")))), 1)
		}
		wantOdd()
		api.Put(widgets, widget("odd", int64(5)))
		wantOdd()
		close(block)
		synctest.Wait()
		testkit.Len(t, testkit.Must(h.List(t.Context(), cache.ListOptions{})), 1)
	})
}

// TestS9_UndecodableError_IsShort: the text names the first objects and the number of the others,
// whatever is in the objects.
func TestS9_UndecodableError_IsShort(t *testing.T) {
	var all []cache.UndecodableObject
	for n := range 1000 {
		all = append(all, cache.UndecodableObject{Name: fmt.Sprint("w", n), Namespace: "default", Err: errors.New(strings.Repeat("é", 10_000))})
	}
	err := error(&cache.UndecodableError{Objects: all})
	if text := err.Error(); len(text) > 2000 || !strings.Contains(text, "default/w0: ") || !strings.Contains(text, "997 more") || strings.ContainsRune(text, '\uFFFD') {
		t.Errorf("got %.3000s", text)
	}
	testkit.ErrorIs(t, err, all[999].Err, "the error does not wrap all causes")
}

// TestS9_UnreadableMetadata: an object whose labels, owners or name cannot be read counts in each
// selection by these.
func TestS9_UnreadableMetadata(t *testing.T) {
	for _, storage := range []cache.Storage{cache.Decoded, cache.Packed} {
		for name, odd := range map[string]string{
			"labels":  `{"metadata":{"name":"odd","namespace":"default","uid":"u","resourceVersion":"3","labels":{"color":7},"ownerReferences":[{"uid":"owner"}]}}`,
			"owners":  `{"metadata":{"name":"odd","namespace":"default","uid":"u","resourceVersion":"3","labels":{"color":"red"},"ownerReferences":[{"uid":7}]}}`,
			"name":    `{"metadata":{"name":7,"namespace":"default","uid":"u","resourceVersion":"3","labels":{"color":"red"},"ownerReferences":[{"uid":"owner"}]}}`,
			"no JSON": `{"metadata":{"name":"odd","namespace":"default","uid":"u","resourceVersion":"3"},"size":NaN}`,
			"numbers": `{"metadata":{"name":"odd","namespace":"default","uid":"u","resourceVersion":"3","labels":{"color":"red"},"ownerReferences":[{"uid":"owner"}]},"size":1e400}`,
		} {
			if name == "no JSON" && storage == cache.Decoded {
				continue // the list as a whole fails; see Stale
			}
			t.Run(storage.String()+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(widgets)
					body := `{"kind":"WidgetList","apiVersion":"test.dev/v1","metadata":{"resourceVersion":"9"},"items":[` + odd + `]}`
					api.Intercept(noStreaming(only(widgets, func(r *sim.Request) (*http.Response, error) {
						if r.Verb == "list" {
							return r.Send(body)
						}
						return r.Hang()
					})))
					b, err := client.New(api.Config(), client.Options{Scheme: widgetScheme()})
					testkit.NoError(t, err)
					c := cache.New(b, cache.Options{Storage: storage})
					h := cache.For[*Widget](c)
					all := readsOf(c, h, sizes(h))
					defer testkit.Start(t, c.Run)()
					synced(t, h)
					red := labels.SelectorFromSet(labels.Set{"color": "red"})
					for reader, read := range all {
						if list, err := read(t, cache.ListOptions{Namespace: "default", Labels: red}); len(list) > 0 || len(leftOut(err)) != 1 {
							t.Errorf("%s: got %q, %v", reader, namesOf(list), err)
						}
					}
				})
			})
		}
	}
}

// TestS9_UndecodableOfAnotherCache: a handle that another cache adopts from a packed informer names
// the objects that client-go's reads leave out.
func TestS9_UndecodableOfAnotherCache(t *testing.T) {
	inBubble(t, func(t *testing.T, api *sim.Server, c *cache.Cache, told *broken) {
		api.Put(widgets, owned("odd", "large", "red", "owner"))
		api.Put(widgets, owned("even", int64(1), "red", "owner"))
		h := cache.For[*Widget](c)
		other := cache.New(nil, cache.Options{})
		adopted := cache.Adopt[*Widget](other, informerOf(h), cache.AdoptOptions{Kind: widgetKind})
		size := sizes(adopted)
		defer testkit.Start(t, c.Run)()
		defer testkit.Start(t, other.Run)()
		synced(t, adopted)
		for name, read := range map[string]func() ([]*Widget, error){
			"List": func() ([]*Widget, error) { return adopted.List(t.Context(), cache.ListOptions{}) },
			"Owned": func() ([]*Widget, error) {
				return client.Collect(adopted.Owned(t.Context(), "owner", cache.ListOptions{}))
			},
			"Index.List": func() ([]*Widget, error) { return size.List(t.Context(), "1", cache.ListOptions{}) },
		} {
			if list, err := read(); !slices.Equal(namesOf(list), []string{"even"}) || !slices.Equal(leftOut(err), []string{"odd"}) {
				t.Errorf("%s: got %q, %v", name, namesOf(list), err)
			}
		}
		testkit.Len(t, leftOut(testkit.Err(adopted.Get(t.Context(), testkit.Key("odd")))), 1)
		testkit.Equal(t, testkit.Must(adopted.Get(t.Context(), testkit.Key("even"))).Size, 1)
	})
}

// TestS9_UndecodableInSlots: an object counts while its slot is kept. The list of added slots does
// not end the errors in other slots.
func TestS9_UndecodableInSlots(t *testing.T) {
	widgetsIn(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		slots := cache.NewSlots(slotFunc(func(key types.NamespacedName) (uint8, error) { return key.Name[0] - 'a', nil }))
		slots.Add(0)
		h := cache.ForScope[*Widget](c, cache.Scope{Slots: slots})
		for _, name := range []string{"a-odd", "b-odd"} {
			u := widget(name, int64(1))
			// It cannot be packed.
			u.Object["metadata"].(map[string]any)["labels"] = map[string]any{"color": int64(7)}
			api.Put(widgets, u)
		}
		api.Put(widgets, widget("a-even", int64(1)))
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		check := func(bad ...string) {
			t.Helper()
			synctest.Wait()
			testkit.SlicesEqual(t, leftOut(testkit.Err(h.List(t.Context(), cache.ListOptions{}))), bad)
		}
		check("a-odd")
		slots.Add(1)
		testkit.NoError(t, slots.WaitForSync(t.Context()))
		check("a-odd", "b-odd")
		api.CutWatches()
		time.Sleep(10 * time.Minute)
		check("a-odd", "b-odd")
		slots.Remove(0)
		time.Sleep(time.Minute)
		check("b-odd")
	})
}

// TestS9_UndecodableInNamespaces: a handle with several informers names the objects of all.
func TestS9_UndecodableInNamespaces(t *testing.T) {
	widgetsIn(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		h := cache.ForScope[*Widget](c, cache.Scope{Namespaces: cache.NewSet("default", "far")})
		for _, size := range []any{"large", int64(1)} {
			for _, namespace := range []string{"default", "far"} {
				u := widget(fmt.Sprintf("%s-%T", namespace, size), size)
				u.SetNamespace(namespace)
				api.Put(widgets, u)
			}
		}
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		for limit, bad := range []int{2, 0, 0, 2} {
			list, err := h.List(t.Context(), cache.ListOptions{Limit: limit})
			if want := 2; len(leftOut(err)) != bad || limit != 1 && len(list) != want || limit == 1 && len(list) != 1 {
				t.Errorf("limit %d: got %q, %v", limit, namesOf(list), err)
			}
		}
	})
}
