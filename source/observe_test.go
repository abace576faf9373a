// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// observer is a queue that writes down, in one list, what it is shown and what it is given.
type observer struct {
	mu  sync.Mutex
	log []string
}

func (o *observer) say(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = append(o.log, s)
}

// Observe is the Observe of its source.Sink.
func (o *observer) Observe(key name, e handler.Event) (after func()) {
	o.say("saw " + key.Name + ": " + describe(e))
	if e.Key().Name == "b" {
		return func() { o.say("after " + key.Name) }
	}
	return nil
}

// AddAll implements queue.
func (o *observer) AddAll(keys []name, _ workqueue.AddOptions) {
	for _, key := range keys {
		o.say("due " + key.Name)
	}
}

func (o *observer) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	log := o.log
	o.log = nil
	return log
}

func (o *observer) want(t *testing.T, want string) {
	t.Helper()
	testkit.Equal(t, strings.Join(o.take(), ", "), want)
}

// own maps an object to its own key, where it has one; mapping is in between, and may fail.
type own struct {
	handler.Handler[name]
	identity func(o handler.Object) (name, bool)
}

func (h own) Identity(o handler.Object) (name, bool) { return h.identity(o) }

func self(fail func(e handler.Event) error) own {
	return own{
		handler.Func[name](func(ctx context.Context, e handler.Event) ([]name, error) {
			if err := fail(e); err != nil {
				return nil, err
			}
			return handler.Self().Keys(ctx, e)
		}),
		func(o handler.Object) (name, bool) { return name{Name: o.GetName()}, o.GetName() != "nobody" },
	}
}

// TestStateAsJSON: errors are text.
func TestStateAsJSON(t *testing.T) {
	s := source.State{Source: "Kind(x)", Phase: "synced", Err: errors.New("down"), Retrying: 2, Dropped: map[string]int64{"f": 3}}
	got, err := json.Marshal(s)
	want := `{"Source":"Kind(x)","Phase":"synced","Note":"","Pending":0,"Retrying":2,"Dropped":{"f":3},"Err":"down"}`
	testkit.Equal(t, err, nil)
	testkit.Equal(t, string(got), want)
}

var none = handler.Named("none", handler.Where(func(_, _ *corev1.ConfigMap) bool { return false }))

// TestObserver: the queue sees each event before the predicates and before the key is added, for
// either kind of informer.
func TestObserver(t *testing.T) {
	for kind, informer := range map[string]bool{"the cache's": false, "adopted": true} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, all, filtered, other := newSetup(t), &observer{}, &observer{}, &observer{}
				s.put("a=1")
				from := func(h handler.Handler[name], predicates ...handler.Predicate) source.Source[name] {
					return source.Kind(s.maps, h, predicates...)
				}
				if informer {
					f, i := s.factory()
					ctx, cancel := context.WithCancel(t.Context())
					defer f.Shutdown()
					defer cancel()
					f.StartWithContext(ctx)
					from = func(h handler.Handler[name], predicates ...handler.Predicate) source.Source[name] {
						return source.Kind(adopted(i), h, predicates...)
					}
				}
				defer s.stop()
				s.run(s.cache.Run)
				for src, q := range map[source.Source[name]]*observer{
					from(handler.Self()):                          all,
					from(handler.Self(), none):                    filtered,
					from(handler.Func[name](handler.Self().Keys)): other, // may be of anything
				} {
					s.run(func(ctx context.Context) error { return src.Run(ctx, sink(src, q, nil)) })
					synced(t, src)
				}
				s.put("a=2")
				s.remove("a")
				s.put("b=1")
				synctest.Wait()
				all.want(t, "saw a: create a ->1 initial, due a, saw a: update a 1>2, due a, saw a: delete a 2>-, due a, saw b: create b ->1, due b, after b")
				filtered.want(t, "saw a: create a ->1 initial, saw a: update a 1>2, saw a: delete a 2>-, saw b: create b ->1, after b")
				other.want(t, "due a, due a, due a, due b")
			})
		})
	}
}

// TestObserver_Once: resyncs and retries are not shown. Events that were merged were shown one by
// one as they came.
func TestObserver_Once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newSetup(t), &observer{}
		defer s.stop()
		s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, cache.Scope{Resync: time.Hour})
		until := time.Now().Add(time.Minute)
		src := source.Kind(s.maps, self(func(handler.Event) error {
			if time.Now().Before(until) {
				return errors.New("not yet")
			}
			return nil
		}))
		s.put("a=1", "nobody=1")
		s.start(src, o, nil)
		synced(t, src)
		s.put("a=2", "a=3")
		synctest.Wait()
		o.want(t, "saw a: create a ->1 initial, saw a: update a 1>2, saw a: update a 2>3")
		time.Sleep(30 * time.Minute)
		if got := o.take(); len(got) != 2 || strings.Contains(strings.Join(got, ""), "saw") {
			t.Errorf("after the failures: %v", got)
		}
		time.Sleep(40 * time.Minute)
		if got := o.take(); len(got) != 2 || strings.Contains(strings.Join(got, ""), "saw") {
			t.Errorf("after a resync: %v", got)
		}
	})
}

// TestS3_Observer: a name with a new UID in one update is shown as the informer delivers it.
func TestS3_Observer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f, o := newSetup(t), &events{synced: make(done)}, &observer{}
		src := source.Kind(adopted(f), handler.Self())
		stop := s.run(func(ctx context.Context) error { return src.Run(ctx, sink(src, o, nil)) })
		synctest.Wait()
		before, after := testkit.ConfigMap("a", "1"), testkit.ConfigMap("a", "2")
		before.UID, after.UID = "u", "v"
		f.handlers[0].OnUpdate(before, after)
		synctest.Wait()
		f.handlers[0].OnUpdate(after, after) // a resync
		synctest.Wait()
		o.want(t, "saw a: update a 1>2, due a, due a, due a")
		stop()
	})
}

// TestS8_Observer: a handler that fails to identify an object is reported, and the key is still
// added.
func TestS8_Observer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o, f := newSetup(t), &observer{}, &failures{}
		defer s.stop()
		h := own{handler.Self(), func(handler.Object) (name, bool) { panic("broken") }}
		src := source.Kind(s.maps, h)
		s.put("a=1")
		s.start(src, o, f.hook())
		synced(t, src)
		o.want(t, "due a")
		if got := f.take(); len(got) != 1 || !strings.HasPrefix(got[0], "Kind(ConfigMap.v1) default/a: panic: broken\n") {
			t.Errorf("reported: %q", got)
		}
	})
}

// TestObserver_Exited: a handler that ends the informer's goroutine ends its source, which says so.
func TestObserver_Exited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &events{synced: make(done)}
		src := source.Kind(adopted(f), own{handler.Self(), func(handler.Object) (name, bool) {
			runtime.Goexit()
			return name{}, true
		}})
		ended := make(chan error)
		go func() { ended <- src.Run(t.Context(), sink(src, &observer{}, nil)) }()
		synctest.Wait()
		f.handlers[0].OnAdd(testkit.ConfigMap("a"), false)
		testkit.ErrorContains(t, <-ended, "runtime.Goexit")
	})
}
