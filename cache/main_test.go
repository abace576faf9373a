// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/internal/access"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(storages.Main{M: m}) }

// newCache returns a cache of the API server, and a record of its hook's calls.
func newCache(t testing.TB, api *sim.Server) (*cache.Cache, *states) {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	told := &states{}
	return cache.New(c, cache.Options{Hook: hook.On(func(e *hook.InformerState) { told.add(*e) }), Storage: storages.Current()}), told
}

// states records the calls of the hook.
type states struct {
	mu   sync.Mutex
	list []hook.InformerState
}

func (s *states) add(state hook.InformerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, state)
}

// take returns the phases since the last take, in one line.
func (s *states) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var phases []string
	for _, state := range s.list {
		phases = append(phases, string(state.Phase))
	}
	s.list = nil
	return strings.Join(phases, ", ")
}

// synced waits for a handle and returns the duration.
func synced[T cache.Object](t testing.TB, h *cache.Handle[T]) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	begin := time.Now()
	testkit.NoError(t, h.WaitForSync(ctx))
	return time.Since(begin)
}

// informerOf returns the informer of a handle, as package cache/factory gets it.
func informerOf[T cache.Object](h *cache.Handle[T]) toolscache.SharedIndexInformer {
	return h.SharedInformer(access.Factory{})
}

// events records the calls of an informer's handler: "add a", "update a", "delete a", "missed a".
type events struct {
	mu   sync.Mutex
	list []string
}

func record[T cache.Object](t *testing.T, h *cache.Handle[T]) *events {
	t.Helper()
	e := &events{}
	testkit.NoError(t, testkit.Err(informerOf(h).AddEventHandler(e.handler())))
	return e
}

func (e *events) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { e.add("add", obj) },
		UpdateFunc: func(_, obj any) { e.add("update", obj) },
		DeleteFunc: func(obj any) { e.add("delete", obj) },
	}
}

func (e *events) add(what string, obj any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		what, obj = "missed", missed.Obj
	}
	e.list = append(e.list, what+" "+obj.(metav1.Object).GetName())
}

// take returns the events since the last take, in one line.
func (e *events) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := strings.Join(e.list, ", ")
	e.list = nil
	return s
}

type answer = func(*sim.Request) (*http.Response, error)

// only answers the requests for one resource.
func only(of sim.Resource, a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource != of.Name {
			return nil, nil
		}
		return a(r)
	}
}

// noStreaming refuses to stream initial lists, like an API server without the feature.
func noStreaming(a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Streaming() {
			return r.Fail(http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		}
		if a == nil {
			return nil, nil
		}
		return a(r)
	}
}

// inJSON makes the server answer in JSON, which can represent an object of the wrong types.
func inJSON(r *sim.Request) (*http.Response, error) {
	r.Header.Set("Accept", "application/json")
	return nil, nil
}

func refuse(r *sim.Request) (*http.Response, error) { return r.Refuse() }

func hang(r *sim.Request) (*http.Response, error) { return r.Hang() }

func forbid(r *sim.Request) (*http.Response, error) {
	return r.Fail(http.StatusForbidden, "no right to "+r.Verb)
}

// onWatch answers watches.
func onWatch(a answer) answer {
	return func(r *sim.Request) (*http.Response, error) {
		if r.Verb != "watch" {
			return nil, nil
		}
		return a(r)
	}
}

// subscribe returns a subscription that records its events.
func subscribe[T cache.Object](t *testing.T, h *cache.Handle[T]) (*cache.Subscription, *events) {
	t.Helper()
	e := &events{}
	s, err := h.Subscribe(e.handler())
	testkit.NoError(t, err)
	return s, e
}
