// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// isSynced reports whether a source is synced.
func isSynced(src source.Source[name]) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return src.Status().WaitForSync(ctx) == nil
}

// synced waits until a source is.
func synced(t *testing.T, src source.Source[name]) {
	t.Helper()
	testkit.NoError(t, src.Status().WaitForSync(t.Context()))
}

// TestS1_ReadyWhenHandled: the store has the initial list long before the handler has seen it. The
// source is ready only then.
func TestS1_ReadyWhenHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a", "b", "c")
		l.fail = func(handler.Event) error {
			time.Sleep(time.Second)
			return nil
		}
		src := source.Kind(s.maps, l)
		s.start(src, l, nil)
		testkit.NoError(t, s.maps.WaitForSync(t.Context()))
		for handled := range 3 {
			synctest.Wait()
			if n := len(l.takeAdded()); isSynced(src) || n != min(handled, 1) {
				t.Fatalf("after %d of 3 objects: synced %v, %d keys more", handled, isSynced(src), n)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		testkit.Equal(t, isSynced(src), true, "not synced after all 3 objects")
	})
}

// TestS1_NotReadyWithoutAList: a source whose kind cannot be listed is not ready, and reports the
// reason.
func TestS1_NotReadyWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") })
		src := source.Kind(s.maps, l)
		s.start(src, l, nil)
		time.Sleep(time.Hour)
		testkit.Equal(t, isSynced(src), false, "synced")
		testkit.Contains(t, src.Status().State().String(), "no right", "synced")
		s.put("a")
		s.api.Intercept(nil)
		synced(t, src)
		testkit.Equal(t, l.take(), "create a -> initial")
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		s.follow(l)
		uid, version := s.api.Object(sim.ConfigMaps, "default", "a").GetUID(), s.api.Version()
		s.put("a=2", "b=1")
		s.remove("a")
		synctest.Wait()
		testkit.Equal(t, l.take(), "create a ->1 initial, update a 1>2, create b ->1, delete a 2>-")
		added := l.takeAdded()
		if len(added) != 4 {
			t.Fatalf("%d keys", len(added))
		}
		// The initial list is Background, all else Normal; each has its reason.
		for i, want := range []workqueue.Class{workqueue.Background, workqueue.Normal, workqueue.Normal, workqueue.Normal} {
			testkit.Equal(t, added[i].Class, want, fmt.Sprintf("key %d", i))
			testkit.Equal(t, added[i].After, 0, fmt.Sprintf("key %d", i))
		}
		want := workqueue.Reason{Source: "Kind(ConfigMap.v1)", Event: "create", Object: "default/a", UID: string(uid), ResourceVersion: version}
		testkit.Equal(t, added[0].Reason, want)
	})
}

// TestLateSource: a source that is added after the informer has synced gets the initial list, too.
func TestLateSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		stop := s.run(s.cache.Run)
		time.Sleep(time.Hour)
		src := source.Kind(s.maps, l)
		s.run(func(ctx context.Context) error { return src.Run(ctx, source.Sink[name]{Queue: l}) })
		synced(t, src)
		if got := l.take(); got != "create a ->1 initial" || l.takeAdded()[0].Class != workqueue.Background {
			t.Errorf("got %s", got)
		}
		s.stops[1]()
		stop()
		if err := source.Kind(s.maps, l).Run(t.Context(), source.Sink[name]{Queue: l}); err == nil || !strings.Contains(err.Error(), "Kind(ConfigMap.v1)") || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("a source of a cache that has stopped: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.Equal(t, source.Kind(s.maps, l).Run(ctx, source.Sink[name]{Queue: l}), nil, "a source that is stopped with its cache")
	})
}

// TestS3_NewUID: a name with a new UID, which the informer shows as an update, is a delete and a
// create.
func TestS3_NewUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1", "b=1")
		// A predicate that would drop the update must see none.
		src := source.Kind(s.maps, l, handler.Where(func(before, after *corev1.ConfigMap) bool { return before == nil || after == nil }))
		s.start(src, l, nil)
		synced(t, src)
		time.Sleep(time.Minute)
		l.take()
		s.missing(func() {
			s.remove("a")
			s.put("a=2", "b=2")
		})
		testkit.Equal(t, l.take(), "delete a 1>- stale, create a ->2")
	})
}

// missing makes changes that the watch misses, and waits until they were seen.
func (s *setup) missing(change func()) {
	s.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
	s.api.CutWatches()
	synctest.Wait()
	change()
	s.api.Expire()
	s.api.Intercept(nil)
	time.Sleep(5 * time.Second)
}

// TestS2_MissedDelete: a deletion without a watch is a delete with the last known state, marked as
// stale.
func TestS2_MissedDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1", "b=1")
		s.follow(l)
		time.Sleep(time.Minute)
		l.take()
		l.takeAdded()
		s.missing(func() {
			s.put("a=2")
			s.remove("a")
		})
		if got := l.take(); got != "delete a 1>- stale" { // b is as it was
			t.Errorf("got %s", got)
		}
		for _, how := range l.takeAdded() {
			testkit.Equal(t, how.Class, workqueue.Normal)
		}
	})
}

// TestFilters: an event goes on if every predicate keeps it. The hook gets each drop with the
// predicate's name.
func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a=1")
		dropped := map[string]int{}
		src := source.Kind(s.maps, l, handler.LabelsChanged, handler.Where(func(_, after *corev1.ConfigMap) bool { return after == nil || after.Name != "hidden" }))
		s.start(src, l, hook.On(func(d *hook.SourceDropped) { dropped[d.Source+": "+d.Reason]++ }))
		synced(t, src)
		s.put("a=2", "a=3", "hidden=1", "hidden=2")
		s.remove("a")
		synctest.Wait()
		testkit.Equal(t, l.take(), "create a ->1 initial, delete a 3>-")
		if len(dropped) != 2 || dropped["Kind(ConfigMap.v1): labels changed"] != 3 || dropped["Kind(ConfigMap.v1): where(*v1.ConfigMap)"] != 1 {
			t.Errorf("dropped %v", dropped)
		}
	})
}

// TestStop: once Run has returned the handler is not called, and it was not left in the middle.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a", "b", "c")
		var calls atomic.Int32
		var inside atomic.Bool
		l.fail = func(handler.Event) error {
			inside.Store(true)
			calls.Add(1)
			time.Sleep(time.Minute) // whatever the context says
			inside.Store(false)
			return errors.New("failed")
		}
		src := source.Kind(s.maps, l)
		failed := 0
		stop := s.start(src, l, hook.On(func(*hook.HandlerFailed) { failed++ }))
		time.Sleep(time.Second)
		stop()
		testkit.Equal(t, inside.Load(), false)
		testkit.Equal(t, calls.Load(), 1)
		testkit.Equal(t, failed, 0, "a failure after the stop was reported")
		s.put("a=1", "d")
		time.Sleep(time.Hour)
		testkit.Equal(t, calls.Load(), 1)
		testkit.Equal(t, isSynced(src), false)
		// The cache goes on for others.
		m, err := s.maps.Get(t.Context(), name{Namespace: "default", Name: "d"})
		testkit.Equal(t, err, nil, m)
	})
}

// TestStopWithoutACache: a source whose cache never ran stops as well.
func TestStopWithoutACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		stop := s.run(func(ctx context.Context) error { return source.Kind(s.maps, l).Run(ctx, source.Sink[name]{Queue: l}) })
		time.Sleep(time.Hour)
		stop()
	})
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		src := s.follow(l)
		testkit.ErrorContains(t, src.Run(t.Context(), source.Sink[name]{Queue: l}), "two controllers")
	})
}

func TestValidate(t *testing.T) {
	s, l := newSetup(t), &log{}
	pods := func(context.Context, *corev1.Pod) ([]name, error) { return nil, nil }
	var none *cache.Handle[*corev1.ConfigMap]
	for _, c := range []struct {
		src  source.Source[name]
		want []string
	}{
		{source.Kind(s.maps, l, handler.GenerationChanged), nil},
		{source.Kind(none, handler.Handler[name](l)), []string{"give a handle and a handler"}},
		{source.Kind[*corev1.ConfigMap, name](s.maps, nil), []string{"give a handle and a handler"}},
		{source.Kind(s.maps, handler.Map[*corev1.ConfigMap, name](nil)), []string{"Kind(ConfigMap.v1)", "the handler is a nil"}},
		{source.Kind(s.maps, handler.Map(pods)), []string{"Kind(ConfigMap.v1)", "*v1.Pod", "*v1.ConfigMap"}},
		{source.Kind(s.maps, handler.Owner(nil)), []string{"Kind(ConfigMap.v1)", "the kind is nil"}},
		{source.Kind(s.maps, handler.Owner(none)), []string{"Kind(ConfigMap.v1)", "the kind is nil"}},
		{source.Kind(s.maps, handler.Func[name](nil)), []string{"Kind(ConfigMap.v1)", "handler.Func"}},
		{
			source.Kind(s.maps, handler.Map(pods), nil, handler.Where(func(_, _ *corev1.Secret) bool { return true })),
			[]string{"*v1.Pod", "a predicate is nil", "*v1.Secret"},
		},
	} {
		testkit.NotEqual(t, c.src.String(), "", "it has no name")
		err := validate(c.src)
		if (err != nil) != (len(c.want) > 0) {
			t.Errorf("got %v, want %q", err, c.want)
			continue
		}
		for _, want := range c.want {
			testkit.ErrorContains(t, err, want)
		}
	}
}

// TestS8_AHandlerThatExitsEndsTheSource: a handler that calls runtime.Goexit ends the goroutine
// that delivers events. No event would follow, so the source must end with an error.
func TestS8_AHandlerThatExitsEndsTheSource(t *testing.T) {
	for name, at := range map[string]int32{"at once": 1, "tried again": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newSetup(t), &log{}
				defer s.stop()
				s.put("a")
				var calls atomic.Int32
				l.fail = func(handler.Event) error {
					if calls.Add(1) == at {
						goruntime.Goexit()
					}
					return errors.New("failed")
				}
				s.run(s.cache.Run)
				src := source.Kind(s.maps, l)
				err := src.Run(t.Context(), sink(src, l, nil))
				testkit.HasPrefix(t, fmt.Sprint(err), "Kind(ConfigMap.v1): a handler or predicate ended its goroutine")
			})
		})
	}
}

func TestUnknownType(t *testing.T) {
	b, err := client.New(sim.NewServer().Config(), client.Options{Scheme: runtime.NewScheme()})
	testkit.NoError(t, err)
	l := &log{}
	src := source.Kind(cache.For[*corev1.ConfigMap](cache.New(b, cache.Options{})), l)
	testkit.ErrorContains(t, src.Run(t.Context(), source.Sink[name]{Queue: l}), "the scheme does not know the type")
}

// TestState_CountsTheEventThatIsBeingHandled: Idle then names it as pending.
func TestState_CountsTheEventThatIsBeingHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		release := make(chan struct{})
		l.fail = func(handler.Event) error {
			<-release
			return nil
		}
		src := source.Kind(s.maps, l)
		s.start(src, l, nil)
		s.put("a")
		synctest.Wait()
		testkit.Equal(t, src.Status().State().Pending, 1, "while the handler runs")
		testkit.Equal(t, src.Status().State().Retrying, 0, "while the handler runs")
		testkit.Contains(t, src.Status().State().String(), "1 event pending", "while the handler runs")
		close(release)
		synctest.Wait()
		testkit.Equal(t, src.Status().State().Pending, 0, "afterwards: pending")
	})
}
