// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// lag is the delay of watches in these tests. It is not a fraction of a minute, unlike bookmarks.
const lag = 700 * time.Millisecond

// writtenOf returns the write that the API server answered with obj.
func writtenOf(r sim.Resource, o *unstructured.Unstructured) consistency.Write {
	return consistency.Write{
		Host: sim.Host, Resource: schema.GroupResource{Group: r.Group, Resource: r.Name}, Namespace: o.GetNamespace(), Name: o.GetName(),
		UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Object: o,
	}
}

// goneOf returns the deletion of an object, as from a Status: without a version.
func goneOf(w consistency.Write) consistency.Write {
	w.Gone, w.ResourceVersion, w.Object = true, "", nil
	return w
}

// markedOf returns the deletion of an object by a deletecollection.
func markedOf(w consistency.Write) consistency.Write {
	w.Marked, w.ResourceVersion, w.Object = true, "", nil
	return w
}

func declared(of ...cache.Declared) consistency.Declarations {
	d := cache.NewDeclarations()
	handles := make([]any, len(of))
	for i := range of {
		handles[i] = of[i]
	}
	d.Declare("the test", handles...)
	return d
}

// verdict returns the answer of Behind as a word: shown, behind, unclear, or behind and unclear.
func verdict(d consistency.Declarations, w consistency.Write) string {
	missing, err := d.Behind(w)
	switch {
	case missing != nil && err != nil:
		return "behind and unclear"
	case missing != nil:
		return "behind"
	case err != nil:
		return "unclear"
	default:
		return "shown"
	}
}

// expect compares verdicts.
func expect(t *testing.T, d consistency.Declarations, w consistency.Write, want, when string) {
	t.Helper()
	if got := verdict(d, w); got != want {
		missing, err := d.Behind(w)
		t.Errorf("%s: got %s, want %s (%v, %v)", when, got, want, missing, err)
	}
}

// waiting waits for a write.
type waiting struct {
	t      *testing.T
	calls  atomic.Int32
	cancel func()
}

// wake is a Waker.
type wake func()

func (w wake) Wake() { w() }

func notify(t *testing.T, d consistency.Declarations, w consistency.Write) *waiting {
	t.Helper()
	missing, err := d.Behind(w)
	if missing == nil {
		t.Fatalf("there is nothing to wait for: %v", err)
	}
	n := &waiting{t: t}
	n.cancel = missing.Notify(wake(func() { n.calls.Add(1) }))
	return n
}

// called checks the number of calls, once everything is idle.
func (n *waiting) called(want int32, when string) {
	n.t.Helper()
	synctest.Wait()
	testkit.Equal(n.t, n.calls.Load(), want, when, "called")
}

// until delays requests until release is called.
func until() (a answer, release func()) {
	released := make(chan struct{})
	return func(*sim.Request) (*http.Response, error) {
		<-released
		return nil, nil
	}, func() { close(released) }
}

// finalized returns a ConfigMap with a finalizer.
func finalized(name string) *corev1.ConfigMap {
	m := testkit.ConfigMap(name)
	m.Finalizers = []string{"test.dev/hold"}
	return m
}

// TestC6_Shown: a write is behind until the watch has delivered it. Only then are waiters called.
func TestC6_Shown(t *testing.T) {
	maps := sim.ConfigMaps
	put := func(api *sim.Server, m *corev1.ConfigMap) consistency.Write { return writtenOf(maps, api.Put(maps, m)) }
	remove := func(api *sim.Server, name string) { api.Remove(maps, "default", name) }
	// The returned write is behind; a and held exist before. The lag begins on return.
	for name, do := range map[string]func(api *sim.Server, before map[string]consistency.Write) consistency.Write{
		"create": func(api *sim.Server, _ map[string]consistency.Write) consistency.Write {
			return put(api, testkit.ConfigMap("new"))
		},
		"create, of an unknown uid": func(api *sim.Server, _ map[string]consistency.Write) consistency.Write {
			w := put(api, testkit.ConfigMap("new"))
			w.UID = ""
			return w
		},
		"update": func(api *sim.Server, _ map[string]consistency.Write) consistency.Write {
			return put(api, testkit.ConfigMap("a", "1"))
		},
		"delete": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			remove(api, "a")
			return goneOf(before["a"])
		},
		"delete, of an unknown uid": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			remove(api, "a")
			w := goneOf(before["a"])
			w.UID = ""
			return w
		},
		"delete, answered by the last state": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			remove(api, "a")
			w := before["a"]
			w.Gone = true
			return w
		},
		"the last finalizer removed": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			remove(api, "held") // the answer has the previous version
			w := before["held"]
			w.Gone = true
			return w
		},
		"marked": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			clientset := kubernetes.NewForConfigOrDie(api.Config())
			testkit.Equal(t, clientset.CoreV1().ConfigMaps("default").Delete(context.Background(), "held", metav1.DeleteOptions{}), nil)
			return markedOf(before["held"])
		},
		"marked, or rather gone": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			remove(api, "a")
			return markedOf(before["a"])
		},
		"delete and recreate: the delete": func(api *sim.Server, before map[string]consistency.Write) consistency.Write {
			remove(api, "a")
			put(api, testkit.ConfigMap("a", "again"))
			return goneOf(before["a"])
		},
		"delete and recreate: the create": func(api *sim.Server, _ map[string]consistency.Write) consistency.Write {
			remove(api, "a")
			return put(api, testkit.ConfigMap("a", "again"))
		},
		"create and delete: the delete": func(api *sim.Server, _ map[string]consistency.Write) consistency.Write {
			w := put(api, testkit.ConfigMap("new"))
			remove(api, "new")
			w.Gone = true // with the create's version, so that a missing object is no proof
			return w
		},
		"overtaken by another object": func(api *sim.Server, _ map[string]consistency.Write) consistency.Write {
			w := put(api, testkit.ConfigMap("new"))
			remove(api, "new")
			put(api, testkit.ConfigMap("new"))
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(maps)
				before := map[string]consistency.Write{"a": put(api, testkit.ConfigMap("a")), "held": put(api, finalized("held"))}
				api.Lag(lag)
				c, _ := newCache(t, api)
				h := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				synced(t, h)
				d := declared(h)
				for _, w := range before {
					expect(t, d, w, "shown", "before it all")
				}
				w := do(api, before)
				expect(t, d, w, "behind", "at once")
				n, cancelled := notify(t, d, w), notify(t, d, w)
				time.Sleep(lag - time.Millisecond)
				n.called(0, "before the watch is there")
				expect(t, d, w, "behind", "before the watch is there")
				cancelled.cancel()
				time.Sleep(time.Millisecond)
				n.called(1, "when it is")
				expect(t, d, w, "shown", "when it is")
				time.Sleep(time.Hour)
				n.cancel()
				n.called(1, "much later")
				cancelled.called(0, "cancelled")
			})
		})
	}
}

// TestC6_ShownByTheObject: without the feature gate, client-go's stores have no version. Then the
// object decides.
func TestC6_ShownByTheObject(t *testing.T) {
	gates, ok := features.FeatureGates().(interface {
		Set(name features.Feature, on bool) error
	})
	if !ok {
		t.Fatal("the features cannot be set")
	}
	set := func(on bool) {
		testkit.NoError(t, gates.Set(features.AtomicFIFO, on))
	}
	set(false)
	defer set(true)
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		a := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		api.Lag(lag)
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		synced(t, h)
		d := declared(h)
		expect(t, d, a, "shown", "what was listed")
		changed := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1")))
		created := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("b")))
		expect(t, d, changed, "behind", "changed")
		expect(t, d, created, "behind", "created")
		n, m := notify(t, d, changed), notify(t, d, created)
		time.Sleep(lag)
		n.called(1, "changed")
		m.called(1, "created")
		api.Remove(sim.ConfigMaps, "default", "a")
		expect(t, d, goneOf(a), "behind", "deleted")
		n = notify(t, d, goneOf(a))
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		time.Sleep(lag)
		n.called(1, "deleted")
		expect(t, d, changed, "shown", "a newer object is there")
		changed.Gone = true
		expect(t, d, changed, "shown", "with a version")
		if missing, err := d.Behind(consistency.Write{Resource: a.Resource, Namespace: "default", Name: "never", UID: "u", ResourceVersion: "7"}); err != nil || missing == nil || !strings.Contains(missing.String(), "at an unknown version") {
			t.Errorf("what is not there: got %v, %v", missing, err)
		}
	})
}

// TestC6_Syncing: before the initial list is complete, the store shows nothing, because a list of a
// lagging API server may be older than the write.
func TestC6_Syncing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		a := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		c, _ := newCache(t, api)
		d := declared(cache.For[*corev1.ConfigMap](c))
		others := declared(cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"name": "other"})}))
		expect(t, d, a, "unclear", "before the cache runs")
		late, release := until()
		api.Intercept(only(sim.ConfigMaps, late))
		defer testkit.Start(t, c.Run)()
		time.Sleep(time.Second)
		for _, w := range []consistency.Write{a, goneOf(a), markedOf(a)} {
			expect(t, d, w, "behind", "while it lists")
			expect(t, others, w, "behind", "while it lists what may still have it")
		}
		missing, _ := d.Behind(a)
		testkit.Equal(t, missing.String(), "ConfigMap.v1 is not synced and does not show the write of default/a at "+a.ResourceVersion)
		api.Remove(sim.ConfigMaps, "default", "a")
		n, m := notify(t, d, a), notify(t, d, goneOf(a))
		release()
		n.called(1, "listed")
		m.called(1, "listed")
		expect(t, d, a, "shown", "listed")
		expect(t, d, goneOf(a), "shown", "listed")
		expect(t, others, a, "shown", "listed")
	})
}

// TestC6_PartOfTheFirstList: a store with a part of the first list shows nothing, because reads are
// not answered yet.
func TestC6_PartOfTheFirstList(t *testing.T) {
	const objects = 3000
	api := sim.NewServer(sim.ConfigMaps)
	var written []consistency.Write
	for i := range objects {
		written = append(written, writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", i)))))
	}
	early := 0
	for range 10 { // a look may come too late
		c, _ := newCache(t, api)
		h := cache.For[*corev1.ConfigMap](c)
		d := declared(h)
		stop := testkit.Start(t, c.Run)
		for h.Stale() != nil {
			for _, w := range []consistency.Write{written[0], written[objects/2]} {
				w.ResourceVersion = written[0].ResourceVersion
				if verdict(d, w) == "shown" && h.Stale() != nil {
					early++
				}
			}
			runtime.Gosched()
		}
		stop()
	}
	testkit.Equal(t, early, 0, "writes that counted as shown before the informer had synced")
}

// TestC6_WhoKeepsIt: a write waits only for informers of its resource, in any version and form,
// whose scope and API server match.
func TestC6_WhoKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := []sim.Resource{sim.ConfigMaps, sim.Secrets, sim.Namespaces, sim.Events, {Group: "events.k8s.io", Version: "v1", Kind: "Event", Name: "events", Namespaced: true}, {Group: "other.dev", Version: "v1", Kind: "ConfigMap", Name: "configmaps", Namespaced: true}}
		api := sim.NewServer(served...)
		api.Lag(time.Hour)
		c, _ := newCache(t, api)
		kind := func(group string, kind string) schema.GroupVersionKind {
			return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
		}
		name := types.NamespacedName{Namespace: "default", Name: "a"}
		maps := map[string]cache.Declared{
			"typed":        cache.For[*corev1.ConfigMap](c),
			"unstructured": cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: kind("", "ConfigMap")}),
			"metadata":     cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: kind("", "ConfigMap")}),
			"namespaces":   cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("default", "other")}),
			"names":        cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: cache.NewSet(name)}),
		}
		excluded := map[string]cache.Declared{
			"another resource":  cache.For[*corev1.Secret](c),
			"another group":     cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: kind("other.dev", "ConfigMap")}),
			"another namespace": cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("third")}),
			"another name":      cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "default", Name: "b"})}),
			"nothing":           cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Names: cache.NewSet[types.NamespacedName]()}),
		}
		namespaces := cache.For[*corev1.Namespace](c)
		events := []cache.Declared{cache.For[*corev1.Event](c), cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: kind("events.k8s.io", "Event")})}
		defer testkit.Start(t, c.Run)()
		time.Sleep(time.Second)
		w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
		all := []cache.Declared{nil}
		for what, h := range maps {
			expect(t, declared(h), w, "behind", what)
			all = append(all, h)
			there := w
			there.Host = "https://elsewhere.test"
			expect(t, declared(h), there, "shown", "elsewhere, "+what)
			there.Host = ""
			expect(t, declared(h), there, "behind", "anywhere, "+what)
		}
		for what, h := range excluded {
			expect(t, declared(h), w, "shown", what)
		}
		expect(t, declared(), w, "shown", "nothing is declared")
		n := writtenOf(sim.Namespaces, api.Put(sim.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
		expect(t, declared(namespaces), n, "behind", "cluster-scoped")
		e := writtenOf(sim.Events, api.Put(sim.Events, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}))
		for _, group := range []string{"", "events.k8s.io"} {
			e.Resource.Group = group
			expect(t, declared(events[0]), e, "behind", "core events of group "+group)
			expect(t, declared(events[1]), e, "behind", "newer events of group "+group)
		}
		e.Resource.Group = "other.dev"
		expect(t, declared(events...), e, "shown", "events of somebody else")
		// The last view that is behind makes a lag.
		d := declared(all...)
		expect(t, d, w, "behind", "all views")
		api.Lag(0)
		api.CutWatches()
		time.Sleep(5 * time.Second)
		expect(t, d, w, "shown", "all views")
		expect(t, declared(namespaces), n, "shown", "cluster-scoped")
	})
}

// TestC6_OneViewIsBehind: all informers that keep the object are asked.
func TestC6_OneViewIsBehind(t *testing.T) {
	for _, form := range []string{"as=PartialObjectMetadata", "application/vnd.kubernetes.protobuf"} {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				c, _ := newCache(t, api)
				typed := cache.For[*corev1.ConfigMap](c)
				metadata := cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: typed.GroupVersionKind()})
				defer testkit.Start(t, c.Run)()
				synced(t, typed)
				synced(t, metadata)
				late, release := until()
				api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) {
					if strings.Contains(r.Header.Get("Accept"), form) {
						return late(r)
					}
					return nil, nil
				}))
				api.CutWatches()
				time.Sleep(time.Second)
				w := writtenOf(sim.ConfigMaps, api.Put(sim.ConfigMaps, testkit.ConfigMap("a")))
				synctest.Wait()
				d := declared(typed, metadata)
				n := notify(t, d, w)
				n.called(0, "one view is behind")
				release()
				n.called(1, "it has caught up")
				expect(t, d, w, "shown", "it has caught up")
			})
		})
	}
}
