// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const (
	bulky     = 32        // objects
	bulk      = 256 << 10 // bytes of each
	mostExtra = bulky * bulk / 4
)

// liveBytes returns the size of the reachable heap.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // the first one only moves what is in pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below 8 EiB
}

var nodes = sim.Resource{Version: "v1", Kind: "Node", Name: "nodes"}

// frame returns an event about the object number n, with annotations of a size.
func frame(action string, of sim.Resource, n, version, size int) string {
	space := ""
	if of.Namespaced {
		space = fmt.Sprintf(`"namespace":"space-%d",`, n)
	}
	return fmt.Sprintf(`{"type":%q,"object":{"apiVersion":"v1","kind":%q,"metadata":{%s"name":"object-%d","uid":"uid-%[4]d","resourceVersion":"%[5]d","labels":{"number":"%[4]d"},`+
		`"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"owner-%[4]d","uid":"owner-%[4]d"}],"annotations":{"bulk":"%[6]s"}}}}`+"\n",
		action, of.Kind, space, n, version, strings.Repeat("x", size))
}

func frames(action string, of sim.Resource, version, size int) string {
	var all strings.Builder
	for n := range bulky {
		all.WriteString(frame(action, of, n, version+n, size))
	}
	return all.String()
}

func initialEnd(of sim.Resource) string {
	return fmt.Sprintf(`{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":%q,"metadata":{"resourceVersion":"100","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", of.Kind)
}

// keptKeys records what the handlers of a program keep of an object as a key.
type keptKeys struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]string
}

func (n *keptKeys) add(obj any) {
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	o, _ := obj.(cache.Object)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys == nil {
		n.keys = map[types.NamespacedName]string{}
	}
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	if _, there := n.keys[key]; !there {
		n.keys[key] = string(o.GetUID())
	}
}

// packedHandler gets packed objects, like a source.
type packedHandler struct {
	toolscache.ResourceEventHandlerFuncs
}

func (packedHandler) TakesRecords() {}

func (n *keptKeys) take() map[types.NamespacedName]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.keys)
}

// inEachStorage runs a test for a cluster-scoped and a namespaced kind in each storage. The server
// answers each watch with body, and leaves it open.
func inEachStorage(t *testing.T, body func(of sim.Resource) string, test func(t *testing.T, of sim.Resource, c *cache.Cache)) {
	for _, of := range []sim.Resource{nodes, sim.ConfigMaps} {
		for _, storage := range []cache.Storage{cache.Packed, cache.Decoded} {
			t.Run(of.Kind+", "+storage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api, text := sim.NewServer(of), body(of)
					api.Intercept(onWatch(func(r *sim.Request) (*http.Response, error) { return r.SendAndHang(text) }))
					b, err := client.New(api.Config(), client.Options{})
					testkit.NoError(t, err)
					test(t, of, cache.New(b, cache.Options{Storage: storage}))
					runtime.KeepAlive(text)
				})
			})
		}
	}
}

// handleOf returns a handle for Nodes or ConfigMaps.
func handleOf(c *cache.Cache, of sim.Resource, s cache.Scope) *cache.Handle[cache.Object] {
	s.Kind = corev1.SchemeGroupVersion.WithKind(of.Kind)
	return cache.ForScope[cache.Object](c, s)
}

// TestF4_StreamedList: while a list streams in, the cache keeps only what the transform leaves.
func TestF4_StreamedList(t *testing.T) {
	inEachStorage(t, func(of sim.Resource) string { return frames("ADDED", of, 1, bulk) }, func(t *testing.T, of sim.Resource, c *cache.Cache) {
		h := handleOf(c, of, cache.Scope{Transform: cache.NewTransform("small", func(o cache.Object) { o.SetAnnotations(nil) })})
		before := liveBytes()
		defer testkit.Start(t, c.Run)()
		synctest.Wait() // the list has no end yet
		testkit.AtMost(t, liveBytes()-before, mostExtra)
		testkit.NotEqual(t, h.Stale(), nil, "the list has ended")
	})
}

// TestF4_Updates: the keys of an object, in the store, in an index or in a program, do not keep the
// bytes of an earlier version.
func TestF4_Updates(t *testing.T) {
	body := func(of sim.Resource) string {
		return frames("ADDED", of, 1, bulk) + initialEnd(of) + frames("MODIFIED", of, 101, 0)
	}
	inEachStorage(t, body, func(t *testing.T, of sim.Resource, c *cache.Cache) {
		h := handleOf(c, of, cache.Scope{})
		number := cache.NewIndex(h, "number", func(o cache.Object) []string { return []string{o.GetLabels()["number"]} })
		kept := &keptKeys{}
		s, err := h.Subscribe(packedHandler{toolscache.ResourceEventHandlerFuncs{
			AddFunc: kept.add, UpdateFunc: func(_, o any) { kept.add(o) }, DeleteFunc: kept.add,
		}})
		testkit.NoError(t, err)
		before := liveBytes()
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		testkit.AtMost(t, liveBytes()-before, mostExtra)
		testkit.Equal(t, len(kept.take()), bulky, "the handler saw objects")
		if list, err := number.List(t.Context(), "7", cache.ListOptions{}); err != nil || len(list) != 1 || list[0].GetResourceVersion() != "108" {
			t.Errorf("got %v, %v", list, err)
		}
		s.Close()
	})
}

// TestF4_PlainList: while a list without streaming arrives, a packed cache keeps only what the
// transform leaves.
func TestF4_PlainList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(nodes)
		var items []string
		for n := range bulky {
			_, object, _ := strings.Cut(frame("ADDED", nodes, n, n+1, bulk), `"object":`)
			items = append(items, strings.TrimSuffix(object, "}\n"))
		}
		body := `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` + strings.Join(items, ",") + ","
		api.Intercept(noStreaming(only(nodes, func(r *sim.Request) (*http.Response, error) { return r.SendAndHang(body) })))
		b, err := client.New(api.Config(), client.Options{})
		testkit.NoError(t, err)
		c := cache.New(b, cache.Options{Storage: cache.Packed})
		h := handleOf(c, nodes, cache.Scope{Transform: cache.NewTransform("small", func(o cache.Object) { o.SetAnnotations(nil) })})
		before := liveBytes()
		defer testkit.Start(t, c.Run)()
		synctest.Wait()
		testkit.AtMost(t, liveBytes()-before, mostExtra)
		testkit.Equal(t, api.Count("list", nodes), 1)
		testkit.NotEqual(t, h.Stale(), nil)
		runtime.KeepAlive(body)
	})
}
