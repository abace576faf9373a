// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// factory returns client-go's own informer of config maps.
func (s *setup) factory() (informers.SharedInformerFactory, toolscache.SharedIndexInformer) {
	s.t.Helper()
	c, err := kubernetes.NewForConfig(s.api.Config())
	testkit.NoError(s.t, err)
	f := informers.NewSharedInformerFactory(c, 0)
	return f, f.Core().V1().ConfigMaps().Informer()
}

// adopted returns a handle of an informer, without a cache.
func adopted(events cache.EventSource) *cache.Handle[*corev1.ConfigMap] {
	return cache.Adopt[*corev1.ConfigMap](nil, events, cache.AdoptOptions{})
}

// TestAdopted: client-go's informers are sources without a cache, with all that Kind guarantees of
// events.
func TestAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		s.put("a=1")
		f, informer := s.factory()
		src := source.Kind(adopted(informer), l, handler.Where(func(_, m *corev1.ConfigMap) bool { return m == nil || m.Name != "hidden" }))
		testkit.Equal(t, src.Status().State().String(), "Kind(ConfigMap.v1 (adopted)): syncing", "before")
		testkit.NotEqual(t, src.Status().Stale(), nil, "before")
		testkit.NoError(t, validate(src))
		stop := s.run(func(ctx context.Context) error { return src.Run(ctx, source.Sink[name]{Queue: l}) })
		synctest.Wait()
		testkit.Equal(t, isSynced(src), false, "synced without a list")
		ctx, cancel := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		synced(t, src)
		testkit.Equal(t, src.Status().Settled(t.Context()), nil)
		testkit.Equal(t, src.Status().Stale(), nil)
		s.put("a=2", "hidden=1")
		s.remove("a")
		synctest.Wait()
		testkit.Equal(t, l.take(), "create a ->1 initial, update a 1>2, delete a 2>-")
		testkit.Equal(t, src.Status().State().Phase, hook.Synced)
		testkit.Equal(t, src.Status().State().Dropped["where(*v1.ConfigMap)"], 1)
		stop()
		s.put("b=1") // the informer goes on
		synctest.Wait()
		testkit.Equal(t, l.take(), "", "after the stop")
		other := source.Kind(adopted(informer), l)
		stop = s.run(func(ctx context.Context) error { return other.Run(ctx, source.Sink[name]{Queue: l}) })
		synced(t, other)
		cancel()
		f.Shutdown()
		testkit.Equal(t, other.Status().State().Phase, hook.Stopped)
		testkit.NotEqual(t, other.Status().Stale(), nil)
		stop()
		testkit.HasPrefix(t, fmt.Sprint(source.Kind(adopted(informer), l).Run(t.Context(), source.Sink[name]{Queue: l})), "Kind(ConfigMap.v1 (adopted)): ")
		s.stop()
	})
}

// TestS1_Adopted: the source of a host's informer, too, is ready only when its handler has seen the
// whole initial list.
func TestS1_Adopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		s.put("a", "b", "c")
		f, informer := s.factory()
		l.fail = func(handler.Event) error {
			time.Sleep(time.Second)
			return nil
		}
		src := source.Kind(adopted(informer), l)
		stop := s.run(func(ctx context.Context) error { return src.Run(ctx, source.Sink[name]{Queue: l}) })
		ctx, cancel := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		f.WaitForCacheSync(t.Context().Done())
		time.Sleep(2500 * time.Millisecond)
		testkit.Equal(t, informer.HasSynced(), true, "after 2 of 3 objects")
		testkit.Equal(t, isSynced(src), false, "after 2 of 3 objects")
		time.Sleep(time.Second)
		testkit.Equal(t, isSynced(src), true, "not synced after all 3 objects")
		stop()
		cancel()
		f.Shutdown()
	})
}

// events is an event source without a store. It keeps calling removed handlers.
type events struct {
	handlers []toolscache.ResourceEventHandler
	removed  int
	synced   done
	stopped  bool
}

type done chan struct{}

func (d done) Name() string                             { return "events" }
func (d done) Done() <-chan struct{}                    { return d }
func (d done) HasSyncedChecker() toolscache.DoneChecker { return d }

func (d done) HasSynced() bool {
	select {
	case <-d:
		return true
	default:
		return false
	}
}

func (e *events) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	e.handlers = append(e.handlers, h)
	return e.synced, nil
}

func (e *events) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	e.removed++
	return nil
}

func (e *events) HasSyncedChecker() toolscache.DoneChecker { return e.synced }

func (e *events) IsStopped() bool { return e.stopped }

// TestAdopted_WithoutAStore: an event source of another framework is a source, too, and nothing is
// delivered after Run has returned. Objects of another type are counted.
func TestAdopted_WithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		f := &events{synced: make(done)}
		src := source.Kind(adopted(f), l)
		began := time.Now()
		l.fail = func(e handler.Event) error {
			if e.Key().Name == "slow" {
				time.Sleep(time.Minute)
			}
			return nil
		}
		var dropped []string
		stop := s.run(func(ctx context.Context) error {
			return src.Run(ctx, sink(src, l, hook.On(func(d *hook.SourceDropped) { dropped = append(dropped, d.Reason) })))
		})
		synctest.Wait()
		h := f.handlers[0]
		h.OnAdd(testkit.ConfigMap("a", "1"), true)
		h.OnUpdate(testkit.ConfigMap("a", "1"), testkit.ConfigMap("a", "2"))
		h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/a", Obj: testkit.ConfigMap("a", "2")})
		h.OnAdd(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, false)
		synctest.Wait()
		testkit.Equal(t, l.take(), "create a ->1 initial, update a 1>2, delete a 2>- stale")
		testkit.Equal(t, isSynced(src), false)
		testkit.Equal(t, src.Status().State().Dropped["not a *v1.ConfigMap"], 1)
		testkit.Len(t, dropped, 1)
		close(f.synced)
		synctest.Wait()
		testkit.Equal(t, isSynced(src), true, "not synced")
		testkit.Equal(t, src.Status().State().Phase, hook.Synced, "not synced")
		f.stopped = true
		testkit.Equal(t, src.Status().State().Phase, hook.Stopped)
		testkit.NotEqual(t, src.Status().Stale(), nil)
		h.OnAdd(testkit.ConfigMap("slow"), false)
		synctest.Wait()
		stop()
		testkit.Equal(t, time.Since(began), time.Minute)
		testkit.Equal(t, f.removed, 1)
		l.take()
		h.OnAdd(testkit.ConfigMap("late"), false)
		h.OnUpdate(testkit.ConfigMap("late"), testkit.ConfigMap("late"))
		h.OnDelete(testkit.ConfigMap("late"))
		synctest.Wait()
		testkit.Equal(t, l.take(), "", "after the end")
	})
}

// TestAdopted_WithoutAStore_Replay: there is nothing to replay or to compare, which is an error and
// no silence.
func TestAdopted_WithoutAStore_Replay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		f := &events{synced: make(done)}
		close(f.synced)
		src := source.Kind(cache.Adopt[*corev1.ConfigMap](s.cache, f, cache.AdoptOptions{}), l)
		s.start(src, l, nil)
		synced(t, src)
		testkit.ErrorContains(t, replay(t, src), "without a store", "Replay says")
		wantNot(t, src, "cannot be compared with what the API server has", "SharedIndexInformer")
	})
}

func TestAdopted_Validate(t *testing.T) {
	s, l := newSetup(t), &log{}
	_, informer := s.factory()
	var none toolscache.SharedIndexInformer
	for want, src := range map[string]source.Source[name]{
		"the informer is nil": source.Kind(adopted(none), handler.Handler[name](l)),
		"and a handler":       source.Kind[*corev1.ConfigMap, name](adopted(informer), nil),
		"*v1.Pod":             source.Kind(adopted(informer), handler.Map(func(context.Context, *corev1.Pod) ([]name, error) { return nil, nil })),
	} {
		if err := validate(src); err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestS9_SettledInTrouble: a source whose kind cannot be listed is settled but not synced, reports
// the reason, and recovers.
func TestS9_SettledInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		src := source.Kind(s.maps, l)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.NotEqual(t, src.Status().Settled(short), nil, "settled before it runs")
		s.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") })
		s.start(src, l, nil)
		long, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		testkit.Equal(t, src.Status().Settled(long), nil)
		testkit.Equal(t, isSynced(src), false)
		testkit.ErrorContains(t, src.Status().Stale(), "no right")
		s.api.Intercept(nil)
		synced(t, src)
		synctest.Wait()
		testkit.NoError(t, src.Status().Stale(), "after the trouble")
		testkit.Equal(t, src.Status().State().Phase, hook.Synced, "after the trouble")
	})
}

// TestS9_SettledWhenHandled: without trouble, settled means that the handler has seen the initial
// list.
func TestS9_SettledWhenHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		defer s.stop()
		s.put("a", "b", "c")
		began := time.Now()
		l.fail = func(handler.Event) error {
			time.Sleep(time.Second)
			return nil
		}
		src := source.Kind(s.maps, l)
		s.start(src, l, nil)
		testkit.NoError(t, s.maps.WaitForSync(t.Context()))
		testkit.NotEqual(t, src.Status().Stale(), nil, "before")
		testkit.Equal(t, src.Status().State().Phase, hook.Syncing, "before")
		testkit.Equal(t, src.Status().Settled(t.Context()), nil)
		testkit.Equal(t, time.Since(began), 3*time.Second)
	})
}
