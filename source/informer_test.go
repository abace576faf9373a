// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/source"
)

// factory returns client-go's own informer of config maps.
func (s *setup) factory() (informers.SharedInformerFactory, toolscache.SharedIndexInformer) {
	s.t.Helper()
	c, err := kubernetes.NewForConfig(s.api.Config())
	if err != nil {
		s.t.Fatal(err)
	}
	f := informers.NewSharedInformerFactory(c, 0)
	return f, f.Core().V1().ConfigMaps().Informer()
}

// TestInformer: client-go's informers are sources, with all that Kind guarantees of events.
func TestInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		s.put("a=1")
		f, informer := s.factory()
		src := source.Informer[*corev1.ConfigMap](informer, l, handler.Where(func(_, m *corev1.ConfigMap) bool { return m == nil || m.Name != "hidden" }))
		if got := src.State().String(); got != "Informer(*v1.ConfigMap): not started" || src.Stale() == nil {
			t.Errorf("before: %s, %v", got, src.Stale())
		}
		if err := src.Validate(); err != nil {
			t.Fatal(err)
		}
		stop := s.run(func(ctx context.Context) error { return src.Run(ctx, l, nil) })
		synctest.Wait()
		if got := src.State().String(); got != "Informer(*v1.ConfigMap): syncing; an informer does not report why it is not synced" || isSynced(src) {
			t.Errorf("without a list: %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		synced(t, src)
		if err := src.Settled(t.Context()); err != nil || src.Stale() != nil {
			t.Error(err, src.Stale())
		}
		s.put("a=2", "hidden=1")
		s.remove("a")
		synctest.Wait()
		if got := l.take(); got != "create a ->1 initial, update a 1>2, delete a 2>-" {
			t.Errorf("got %s", got)
		}
		if got := src.State(); got.Phase != hook.Synced || got.Dropped["where(*v1.ConfigMap)"] != 1 {
			t.Errorf("got %s", got)
		}
		stop()
		s.put("b=1") // the informer goes on
		synctest.Wait()
		if got := l.take(); got != "" || src.State().Phase != hook.Stopped {
			t.Errorf("after the stop: %s, %s", got, src.State())
		}
		other := source.Informer[*corev1.ConfigMap](informer, l)
		stop = s.run(func(ctx context.Context) error { return other.Run(ctx, l, nil) })
		synced(t, other)
		cancel()
		f.Shutdown()
		if got := other.State(); got.Phase != hook.Stopped || other.Stale() == nil {
			t.Errorf("the informer has stopped, and the source says %s", got)
		}
		stop()
		if err := source.Informer[*corev1.ConfigMap](informer, l).Run(t.Context(), l, nil); err == nil || !strings.HasPrefix(err.Error(), "Informer(*v1.ConfigMap): ") {
			t.Errorf("got %v", err)
		}
		s.stop()
	})
}

// TestC6_Informer: keys wait for their writes if the informer is client-go's. The end of the source
// removes everything that was added to the informer.
func TestC6_Informer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		f, informer := s.factory()
		ctx, cancel := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		defer f.Shutdown()
		defer cancel()
		src := source.Informer[*corev1.ConfigMap](informer, l)
		declared, set := cache.Declare()
		declare := func(src source.Source[name]) {
			set("test", src.(interface{ Handle() cache.Declared }).Handle())
		}
		declare(src)
		stop := s.run(func(ctx context.Context) error { return src.Run(ctx, l, nil) })
		synced(t, src)
		s.api.Lag(time.Second)
		s.put("a=1")
		stored := s.api.Object(sim.ConfigMaps, "default", "a")
		w := consistency.Write{Host: sim.Host, Resource: schema.GroupResource{Resource: "configmaps"}, Namespace: "default", Name: "a", UID: stored.GetUID(), ResourceVersion: stored.GetResourceVersion()}
		woken := 0
		wait := func() {
			t.Helper()
			gap, err := declared.Behind(w)
			if gap == nil || err != nil {
				t.Fatalf("got %v, %v", gap, err)
			}
			gap.Notify(func() { woken++ })
		}
		wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if gap, err := declared.Behind(w); gap != nil || err != nil || woken != 1 {
			t.Errorf("shown, and yet: %v, %v; woken %d times", gap, err, woken)
		}
		w.ResourceVersion = "1000"
		wait()
		stop()
		if gap, err := declared.Behind(w); gap != nil || err != nil || woken != 2 {
			t.Errorf("the source has ended, and yet: %v, %v; woken %d times", gap, err, woken)
		}
		declare(source.Informer[*corev1.ConfigMap](&foreign{}, l))
		if gap, err := declared.Behind(w); gap != nil || err != nil {
			t.Errorf("nobody can look into it: %v, %v", gap, err)
		}
	})
}

// TestS1_Informer: its source, too, is ready only when its handler has seen the whole initial list.
func TestS1_Informer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		s.put("a", "b", "c")
		f, informer := s.factory()
		l.fail = func(handler.Event) error {
			time.Sleep(time.Second)
			return nil
		}
		src := source.Informer[*corev1.ConfigMap](informer, l)
		stop := s.run(func(ctx context.Context) error { return src.Run(ctx, l, nil) })
		ctx, cancel := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		f.WaitForCacheSync(t.Context().Done())
		time.Sleep(2500 * time.Millisecond)
		if !informer.HasSynced() || isSynced(src) {
			t.Errorf("after 2 of 3 objects: the informer is synced: %v, the source: %v", informer.HasSynced(), isSynced(src))
		}
		time.Sleep(time.Second)
		if !isSynced(src) {
			t.Error("not synced after all 3 objects")
		}
		stop()
		cancel()
		f.Shutdown()
	})
}

// foreign is an informer with only the methods of EventSource. It keeps calling removed handlers.
type foreign struct {
	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandler
	removed  int
	synced   done
	added    chan struct{} // if any, is closed when there is a handler
}

type done chan struct{}

func (d done) Name() string                             { return "foreign" }
func (d done) Done() <-chan struct{}                    { return d }
func (d done) HasSynced() bool                          { return false }
func (d done) HasSyncedChecker() toolscache.DoneChecker { return d }

func (f *foreign) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, _ toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers = append(f.handlers, h)
	if f.added != nil {
		close(f.added)
	}
	return f.synced, nil
}

func (f *foreign) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	f.removed++
	return nil
}

func (f *foreign) HasSyncedChecker() toolscache.DoneChecker { return f.synced }

// TestForeignInformer: an informer of another framework is a source, too, and nothing is delivered
// after Run has returned. Objects of another type are counted.
func TestForeignInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t), &log{}
		f := &foreign{synced: make(done)}
		src := source.Informer[*corev1.ConfigMap](f, l)
		began := time.Now()
		l.fail = func(e handler.Event) error {
			if e.Key().Name == "slow" {
				time.Sleep(time.Minute)
			}
			return nil
		}
		var dropped []string
		stop := s.run(func(ctx context.Context) error {
			return src.Run(ctx, l, &hook.Source{Dropped: func(d hook.SourceDropped) { dropped = append(dropped, d.Reason) }})
		})
		synctest.Wait()
		h := f.handlers[0]
		h.OnAdd(configMap("a", "1"), true)
		h.OnUpdate(configMap("a", "1"), configMap("a", "2"))
		h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "default/a", Obj: configMap("a", "2")})
		h.OnAdd(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, false)
		if got := l.take(); got != "create a ->1 initial, update a 1>2, delete a 2>- stale" || isSynced(src) {
			t.Errorf("got %s", got)
		}
		if n := src.State().Dropped["not a *v1.ConfigMap"]; n != 1 || len(dropped) != 1 {
			t.Errorf("got %s, told %q", src.State(), dropped)
		}
		close(f.synced)
		synctest.Wait()
		if !isSynced(src) {
			t.Error("not synced")
		}
		go h.OnAdd(configMap("slow"), false)
		synctest.Wait()
		stop()
		if took := time.Since(began); took != time.Minute || f.removed != 1 {
			t.Errorf("Run returned after %s, with %d handlers removed", took, f.removed)
		}
		l.take()
		h.OnAdd(configMap("late"), false)
		h.OnUpdate(configMap("late"), configMap("late"))
		h.OnDelete(configMap("late"))
		if got := l.take(); got != "" {
			t.Errorf("after the end: %s", got)
		}
	})
}

// TestDroppingDoesNotAllocate: most events are dropped, where predicates are used.
func TestDroppingDoesNotAllocate(t *testing.T) {
	s, l := newSetup(t), &log{}
	f := &foreign{synced: make(done), added: make(chan struct{})}
	src := source.Informer[*corev1.ConfigMap](f, l, handler.GenerationChanged, handler.Where(func(_, _ *corev1.ConfigMap) bool { return false }))
	stop := s.run(func(ctx context.Context) error {
		return src.Run(ctx, l, &hook.Source{Dropped: func(hook.SourceDropped) {}})
	})
	<-f.added
	before, after := configMap("a", "1"), configMap("a", "2")
	if n := testing.AllocsPerRun(1000, func() { f.handlers[0].OnUpdate(before, after) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := src.State().Dropped["where(*v1.ConfigMap)"]; n != 1001 {
		t.Errorf("%d dropped", n)
	}
	stop()
}

func TestInformerValidate(t *testing.T) {
	s, l := newSetup(t), &log{}
	_, informer := s.factory()
	var none toolscache.SharedIndexInformer
	for want, src := range map[string]source.Source[name]{
		"give an informer": source.Informer[*corev1.ConfigMap](none, handler.Handler[name](l)),
		"and a handler":    source.Informer[*corev1.ConfigMap, name](informer, nil),
		"*v1.Pod":          source.Informer[*corev1.ConfigMap](informer, handler.Map(func(context.Context, *corev1.Pod) ([]name, error) { return nil, nil })),
	} {
		if err := src.Validate(); err == nil || !strings.Contains(err.Error(), want) {
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
		if err := src.Settled(short); err == nil {
			t.Error("settled before it runs")
		}
		s.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") })
		s.start(src, l, nil)
		long, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := src.Settled(long); err != nil || isSynced(src) {
			t.Errorf("settled: %v, synced: %v", err, isSynced(src))
		}
		if err := src.Stale(); err == nil || !strings.Contains(err.Error(), "no right") {
			t.Errorf("stale: %v", err)
		}
		s.api.Intercept(nil)
		synced(t, src)
		synctest.Wait()
		if err := src.Stale(); err != nil || src.State().Phase != hook.Synced {
			t.Errorf("after the trouble: %v, %s", err, src.State())
		}
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
		if err := s.maps.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if src.Stale() == nil || src.State().Phase != hook.Syncing {
			t.Errorf("before: %v, %s", src.Stale(), src.State())
		}
		if err := src.Settled(t.Context()); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("settled after %s: %v", time.Since(began), err)
		}
	})
}
