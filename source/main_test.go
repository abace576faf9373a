// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/testkit/storages"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(storages.Main{M: m}) }

type name = types.NamespacedName

type queue[K comparable] interface {
	AddAll(keys []K, how workqueue.AddOptions)
}

// sink returns a sink with the queue, whose observer calls the queue's Observe, if any, and hooks.
func sink[K comparable](src fmt.Stringer, q queue[K], h *hook.Hook) source.Sink[K] {
	return source.Sink[K]{Queue: q, Observer: observing[K]{src.String(), q, h}}
}

type observing[K comparable] struct {
	source string
	queue  queue[K]
	hook   *hook.Hook
}

func (o observing[K]) Observe(key K, e handler.Event) (after func()) {
	if q, ok := o.queue.(interface {
		Observe(key K, e handler.Event) (after func())
	}); ok {
		return q.Observe(key, e)
	}
	return nil
}

func (o observing[K]) Dropped(reason string) {
	o.hook.Send(&hook.SourceDropped{Source: o.source, Reason: reason})
}

func (o observing[K]) HandlerFailed(object string, err error) {
	o.hook.Send(&hook.HandlerFailed{Source: o.source, Object: object, Err: err})
}

func (o observing[K]) HandlerBlocked(after time.Duration) {
	o.hook.Send(&hook.HandlerBlocked{Source: o.source, After: after})
}

func (o observing[K]) PollFailed(err error) {
	o.hook.Send(&hook.PollFailed{Source: o.source, Err: err})
}

type replaying interface {
	Replay(ctx context.Context) error
}

func replay(t *testing.T, src any) error {
	t.Helper()
	return src.(replaying).Replay(t.Context())
}

func validate(src any) error { return src.(interface{ Validate() error }).Validate() }

// setup is a cache of config maps in a bubble.
type setup struct {
	t     *testing.T
	api   *sim.Server
	cache *cache.Cache
	maps  *cache.Handle[*corev1.ConfigMap]
	stops []func()
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	api := sim.NewServer(sim.ConfigMaps)
	c, err := client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	s := &setup{t: t, api: api, cache: cache.New(c, cache.Options{Storage: storages.Current()})}
	s.maps = cache.For[*corev1.ConfigMap](s.cache)
	return s
}

// put stores config maps, each with the data given after an equals sign.
func (s *setup) put(objects ...string) {
	for _, o := range objects {
		name, data, _ := strings.Cut(o, "=")
		s.api.Put(sim.ConfigMaps, testkit.ConfigMap(name, data))
	}
}

func (s *setup) remove(name string) { s.api.Remove(sim.ConfigMaps, "default", name) }

// run runs something until stop is called.
func (s *setup) run(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		testkit.Equal(s.t, <-ended, nil)
	})
	s.stops = append(s.stops, stop)
	return stop
}

// start runs the cache and a source.
func (s *setup) start(src source.Source[name], q queue[name], h *hook.Hook) (stop func()) {
	s.t.Helper()
	testkit.NoError(s.t, validate(src))
	s.run(s.cache.Run)
	return s.run(func(ctx context.Context) error { return src.Run(ctx, sink(src, q, h)) })
}

// follow runs a source of the config maps until it is synced.
func (s *setup) follow(l *log) source.Source[name] {
	s.t.Helper()
	src := source.Kind(s.maps, l)
	s.start(src, l, nil)
	synced(s.t, src)
	return src
}

// stop stops all, in reverse order.
func (s *setup) stop() {
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
}

// log is a handler and a queue that write down what they get.
type log struct {
	mu     sync.Mutex
	events []string
	added  []workqueue.AddOptions
	// fail says with what a handler fails, if it does.
	fail func(e handler.Event) error
}

func describe(e handler.Event) string {
	data := func(o handler.Object) string {
		if o == nil {
			return "-"
		}
		if p, ok := o.(*packed.Object); ok { // an observer gets it so
			o, _ = p.Decode()
		}
		return o.(*corev1.ConfigMap).Data["data"]
	}
	s := fmt.Sprintf("%s %s %s>%s", e.Op, e.Key().Name, data(e.Old), data(e.New))
	if e.Initial {
		s += " initial"
	}
	if e.Stale {
		s += " stale"
	}
	return s
}

// Keys implements handler.Handler.
func (l *log) Keys(_ context.Context, e handler.Event) ([]name, error) {
	l.mu.Lock()
	fail := l.fail
	l.mu.Unlock()
	if fail != nil {
		if err := fail(e); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, describe(e))
	return []name{e.Key()}, nil
}

// failWith has the handler fail from now on, while it runs.
func (l *log) failWith(fail func(e handler.Event) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = fail
}

// AddAll implements queue.
func (l *log) AddAll(keys []name, how workqueue.AddOptions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range keys {
		l.added = append(l.added, how)
	}
}

// take returns the events since the last take, in order and in one line.
func (l *log) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.events, ", ")
	l.events = nil
	return s
}

func (l *log) takeAdded() []workqueue.AddOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	added := l.added
	l.added = nil
	return added
}
