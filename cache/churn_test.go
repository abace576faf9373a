// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// FuzzS2_Churn: objects and namespaces come and go, watches break, versions expire, the API server
// returns errors, the CRD leaves and returns, and handlers are slow. Afterwards, all stores and
// subscriptions match the API server. A stop takes no time.
func FuzzS2_Churn(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { newChurn(t, seed).run() })
	})
}

var churned = []string{"a", "b", "c", "default"} // namespaces; ConfigMaps are in default

type churn struct {
	t      *testing.T
	random *rand.Rand // used by the test's goroutine only
	api    *sim.Server
	set    *cache.Set[string]
	caches []*cache.Cache
	told   []*told
	served bool
	normal answer
}

// told is what a subscription saw, and what it should have seen.
type told struct {
	name   string
	of     sim.Resource
	scoped bool // limited to the set
	list   func() map[string]string
	stale  func() error
	close  func()

	mu   sync.Mutex // guards have
	have map[string]string
}

func newChurn(t *testing.T, seed uint64) *churn {
	c := &churn{t: t, random: rand.New(rand.NewPCG(seed, 1)), api: sim.NewServer(widgets, sim.ConfigMaps), set: cache.NewSet("a"), served: true}
	if c.random.IntN(2) == 0 {
		c.normal = noStreaming(nil)
	}
	custom, _ := widgetCache(t, c.api)
	builtIn, _ := newCache(t, c.api)
	c.caches = []*cache.Cache{custom, builtIn}
	kind := schema.GroupVersionKind{Group: "test.dev", Version: "v1", Kind: "Widget"}
	watchChurn(c, "widgets", widgets, cache.For[*Widget](custom), false)
	watchChurn(c, "widgets of the set", widgets, cache.ForScope[*Widget](custom, cache.Scope{Namespaces: c.set}), true)
	watchChurn(c, "unstructured", widgets, cache.ForScope[*unstructured.Unstructured](custom, cache.Scope{Kind: kind}), false)
	watchChurn(c, "metadata of the set", widgets, cache.ForScope[*metav1.PartialObjectMetadata](custom, cache.Scope{Kind: kind, Namespaces: c.set}), true)
	watchChurn(c, "config maps", sim.ConfigMaps, cache.For[*corev1.ConfigMap](builtIn), false)
	return c
}

func watchChurn[T cache.Object](c *churn, name string, of sim.Resource, h *cache.Handle[T], scoped bool) {
	s := &told{name: name, of: of, scoped: scoped, stale: h.Stale, have: map[string]string{}}
	s.list = func() map[string]string {
		list, err := h.List(c.t.Context(), cache.ListOptions{})
		testkit.Equal(c.t, err, nil, name)
		versions := map[string]string{}
		for _, o := range list {
			versions[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		}
		return versions
	}
	subscription, err := h.Subscribe(s.handler())
	testkit.NoError(c.t, err)
	s.close = subscription.Close
	c.told = append(c.told, s)
}

func (s *told) handler() toolscache.ResourceEventHandler {
	note := func(obj any, there bool) {
		if rand.IntN(10) == 0 {
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		}
		if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = missed.Obj
		}
		o, _ := obj.(metav1.Object)
		s.mu.Lock()
		defer s.mu.Unlock()
		if there {
			s.have[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		} else {
			delete(s.have, o.GetNamespace()+"/"+o.GetName())
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note(obj, true) },
		UpdateFunc: func(_, obj any) { note(obj, true) },
		DeleteFunc: func(obj any) { note(obj, false) },
	}
}

// nasty answers with random errors of API servers and proxies.
func (c *churn) nasty(r *sim.Request) (*http.Response, error) {
	const status = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}}`
	if c.normal != nil {
		if answer, err := c.normal(r); answer != nil || err != nil {
			return answer, err
		}
	}
	bodies := []string{fmt.Sprintf(status, 410, "Expired"), fmt.Sprintf(status, 500, "InternalError"), `{"type":"MODIF`, ``, `{"type":"ERROR","object":null}`}
	codes := []int{500, 429, 403, 410, 504}
	switch n := rand.IntN(14); {
	case n == 0:
		return r.Refuse()
	case r.Verb == "discover" || n > 10:
		return nil, nil
	case n <= len(codes):
		return r.Fail(codes[n-1], "nasty")
	case r.Verb == "watch":
		return r.Send(bodies[n-len(codes)-1])
	default:
		return r.Send(`{"kind":"Wid`)
	}
}

func (c *churn) run() {
	c.api.Intercept(c.normal)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, each := range c.caches {
		running.Go(func() {
			testkit.Equal(c.t, each.Run(ctx), nil)
		})
	}
	for range 150 {
		c.step()
	}
	c.api.Intercept(c.normal)
	if !c.served {
		c.api.Serve(widgets)
	}
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	c.compare()
	for _, s := range c.told {
		s.close()
	}
	cancel()
	begin := time.Now()
	running.Wait()
	testkit.AtMost(c.t, time.Since(begin), time.Second)
}

func (c *churn) step() {
	r := c.random
	switch k := r.IntN(30); {
	case k < 10 && c.served:
		w := widget(fmt.Sprint("w", r.IntN(6)), int64(r.IntN(100)))
		w.SetNamespace(churned[r.IntN(3)])
		c.api.Put(widgets, w)
		c.api.Put(sim.ConfigMaps, testkit.ConfigMap(fmt.Sprint("m", r.IntN(6)), fmt.Sprint(r.IntN(100))))
	case k < 16 && c.served:
		c.api.Remove(widgets, churned[r.IntN(3)], fmt.Sprint("w", r.IntN(6)))
		c.api.Remove(sim.ConfigMaps, "default", fmt.Sprint("m", r.IntN(6)))
	case k == 16:
		c.api.CutWatches()
	case k == 17:
		c.api.Expire()
	case k == 18:
		c.api.Intercept(c.nasty)
	case k == 19:
		c.api.Intercept(c.normal)
	case k == 20 && r.IntN(3) == 0:
		if c.served {
			c.api.Withdraw(widgets)
		} else {
			c.api.Serve(widgets)
		}
		c.served = !c.served
	case k == 21:
		c.set.Add(churned[r.IntN(3)])
	case k == 22:
		c.set.Remove(churned[r.IntN(3)])
	case k == 23:
		c.set.Replace(churned[r.IntN(3)], churned[r.IntN(3)])
	case k == 24:
		c.set.Remove("a")
		c.set.Add("a")
	case k == 25:
		time.Sleep(time.Duration(r.IntN(300)) * time.Second)
	default:
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	}
}

// compare compares all stores and subscriptions with the API server.
func (c *churn) compare() {
	inSet := map[string]bool{}
	for _, namespace := range c.set.Elements() {
		inSet[namespace] = true
	}
	for _, s := range c.told {
		want := map[string]string{}
		for _, namespace := range churned {
			for n := range 12 {
				name := fmt.Sprint([]string{"w", "m"}[n/6], n%6)
				if o := c.api.Object(s.of, namespace, name); o != nil && (!s.scoped || inSet[namespace]) {
					want[namespace+"/"+name] = o.GetResourceVersion()
				}
			}
		}
		got, stale := s.list(), s.stale()
		s.mu.Lock()
		if !maps.Equal(got, want) || !maps.Equal(s.have, want) || stale != nil {
			c.t.Errorf("%s: the API server has %v, the copy %v, the subscription was told of %v; stale: %v", s.name, want, got, s.have, stale)
		}
		s.mu.Unlock()
	}
}
