// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// TestC11_Pause: Pause and PauseKey let running Reconciles finish, and lose nothing.
func TestC11_Pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			seen.note(key)
			time.Sleep(time.Second)
			return controller.Result{}, nil
		}, controller.Options{})
		c.Pause() // before the start
		c.PauseKey("b")
		c.Watch(newSource("keys", "a", "b"))
		stop := start(t, c)
		want := func(want string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			testkit.Equal(t, strings.Join(seen.keys, ""), want, "reconciled")
			seen.keys = nil
		}
		want("")
		c.Resume()
		want("a")
		c.Queue().Add("b")
		c.PauseKey("a")
		c.Requeue("a")
		want("")
		c.ResumeKey("a")
		c.ResumeKey("b")
		c.ResumeKey("never paused")
		want("ab")
		c.Queue().Add("a")
		synctest.Wait()
		c.Queue().Add("a") // during its Reconcile
		c.PauseKey("a")
		c.PauseKey("a")
		want("a")
		c.ResumeKey("a")
		want("a")
		if s := c.Snapshot(); s.Keys != nil || c.TheQueue().Len() != (workqueue.Len{}) {
			t.Errorf("something is left: %+v", s)
		}
		ok(t, stop())
	})
}

// TestRequeue: it makes a key due at once, whatever the key waits for.
func TestRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &calls{began: time.Now()}
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			if seen.note(key) == 1 {
				return controller.Result{}, controller.RetryAfter(errFlaky, time.Hour)
			}
			return controller.Result{}, nil
		}, controller.Options{})
		c.Watch(newSource("keys", "a"))
		stop := start(t, c)
		time.Sleep(time.Minute)
		c.Requeue("a")
		c.Requeue("new")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		testkit.Equal(t, fmt.Sprint(seen.keys, seen.at), "[a a new] [0s 1m0s 1m0s]", "reconciled")
		ok(t, stop())
	})
}

// TestLogLevel: the level applies to one key, and to all loggers derived from the Reconcile's
// logger.
func TestLogLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			l := logr.FromContextAsSlogLogger(ctx)
			l.Debug("plain")
			l.With("with", 1).WithGroup("group").Debug("derived", "x", 1)
			l.Info("info")
			logr.FromContextOrDiscard(ctx).V(4).Info("verbose") // slog.LevelDebug
			return controller.Result{}, nil
		}, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		src := newSource("keys", "a", "b")
		c.Watch(src)
		c.SetLogLevel("a", slog.LevelDebug)
		c.SetLogLevel("b", slog.LevelError)
		stop := start(t, c)
		want := func(want string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for line := range strings.Lines(lines.String()) {
				_, rest, _ := strings.Cut(line, "msg=")
				msg, rest, _ := strings.Cut(rest, " ")
				_, rest, _ = strings.Cut(rest, "key=")
				if key, _, _ := strings.Cut(rest, " "); key != "" {
					got = append(got, key+" "+msg)
				}
			}
			testkit.Equal(t, strings.Join(got, ", "), want)
			lines = testkit.Buffer{}
		}
		want("a plain, a derived, a info, a verbose")
		c.ResetLogLevel("a")
		c.ResetLogLevel("b")
		c.Queue().AddAll([]string{"a", "b"}, workqueue.AddOptions{})
		want("a info, b info")
		if s := c.Snapshot(); s.Keys != nil {
			t.Errorf("got %+v", s.Keys)
		}
		ok(t, stop())
	})
}

// marked returns a ConfigMap with annotations from pairs of name and value.
func marked(name string, data string, annotations ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"data": data}}
	for i := 0; i < len(annotations); i += 2 {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotations[i], annotations[i+1])
	}
	return m
}

// marks is a controller of ConfigMaps that records the reasons of its Reconciles.
type marks struct {
	*controller.Controller[types.NamespacedName]
	api  *sim.Server
	seen []string
}

func newMarks(t *testing.T, watch func(*cache.Cache) source.Source[types.NamespacedName]) *marks {
	t.Helper()
	return newMarksWith(t, controller.Options{}, watch)
}

func newMarksWith(t *testing.T, o controller.Options, watch func(*cache.Cache) source.Source[types.NamespacedName]) *marks {
	t.Helper()
	o.Logger = silent
	api, all := cluster(t, sim.ConfigMaps)
	m := &marks{api: api}
	m.Controller = controller.New("test", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
		look, _ := m.Queue().Lookup(key)
		for _, r := range look.Reasons {
			s := key.Name + " " + r.Event
			if strings.HasPrefix(r.Source, "annotation") {
				s += " by " + r.Source + " of " + r.Object
			}
			m.seen = append(m.seen, s)
		}
		return controller.Result{}, nil
	}), o)
	m.Watch(watch(all))
	return m
}

func (m *marks) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		ok(t, <-ended)
	})
}

// put stores an object and waits for its Reconcile.
func (m *marks) put(t *testing.T, o *corev1.ConfigMap, want string) {
	t.Helper()
	m.api.Put(sim.ConfigMaps, o)
	m.want(t, want)
}

func (m *marks) want(t *testing.T, want string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	testkit.Equal(t, strings.Join(m.seen, ", "), want)
	m.seen = nil
}

var views = map[string]func(*cache.Cache) source.Source[types.NamespacedName]{
	"typed": func(c *cache.Cache) source.Source[types.NamespacedName] {
		return source.Kind(cache.For[*corev1.ConfigMap](c), handler.Self(), handler.LabelsChanged)
	},
	"unstructured": func(c *cache.Cache) source.Source[types.NamespacedName] {
		return source.Kind(cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}), handler.Self(), handler.LabelsChanged)
	},
}

// TestC11_PausedByAnnotation: a predicate does not hide the annotation. A paused key is not
// reconciled even once.
func TestC11_PausedByAnnotation(t *testing.T) {
	const paused = controller.PausedAnnotation
	for name, view := range views {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMarks(t, view)
				key := types.NamespacedName{Namespace: "default", Name: "a"}
				m.api.Put(sim.ConfigMaps, marked("a", "1", paused, ""))
				m.api.Put(sim.ConfigMaps, marked("b", "1", paused, "false"))
				m.start(t)
				m.want(t, "b create")
				s := m.Snapshot()
				if len(s.Keys) != 1 || s.Keys[0].Key != key || len(s.Keys[0].PausedBy) != 1 || !strings.Contains(s.Keys[0].PausedBy[0], "setpoint.dev/paused of default/a, Kind(") {
					t.Errorf("paused: %+v", s.Keys)
				}
				m.put(t, marked("a", "2", paused, "true"), "")
				m.put(t, marked("a", "2"), "a create") // its reason from before the pause
				m.put(t, marked("a", "2", paused, "for now"), "")
				m.Queue().Add(key)
				m.want(t, "")
				m.put(t, marked("a", "2", paused, "false"), "a Added")
				m.put(t, marked("c", "1", paused, "yes"), "")

				m.PauseKey(key) // either pause is enough
				m.put(t, marked("a", "2", paused, "yes"), "")
				m.Requeue(key)
				m.ResumeKey(key)
				m.want(t, "")
				m.PauseKey(key)
				m.put(t, marked("a", "2"), "")
				m.ResumeKey(key)
				m.want(t, "a RequeueNow")

				m.api.Remove(sim.ConfigMaps, "default", "c")
				m.want(t, "c create, c delete")
				m.put(t, marked("c", "1"), "c create") // another object of that name
				if s := m.Snapshot(); s.Keys != nil {
					t.Errorf("still paused: %+v", s.Keys)
				}
			})
		})
	}
}

// TestC11_PausesAndLogLevelsEndWithTheObject: the deletion is reconciled, with the log level. Then
// nothing of the key is left.
func TestC11_PausesAndLogLevelsEndWithTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		api, all := cluster(t, sim.ConfigMaps)
		m := &marks{api: api}
		m.Controller = controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			look, _ := m.Queue().Lookup(key)
			for _, r := range look.Reasons {
				m.seen = append(m.seen, key.Name+" "+r.Event)
			}
			logr.FromContextAsSlogLogger(ctx).Debug("looking", "name", key.Name)
			return controller.Result{}, nil
		}), controller.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		m.Watch(source.Kind(cache.For[*corev1.ConfigMap](all), handler.Self()))
		m.start(t)
		paused, verbose := types.NamespacedName{Namespace: "default", Name: "p"}, types.NamespacedName{Namespace: "default", Name: "v"}
		m.PauseKey(paused) // before the object exists
		m.SetLogLevel(verbose, slog.LevelDebug)
		m.put(t, marked("p", "1"), "")
		m.put(t, marked("v", "1"), "v create")
		m.api.Remove(sim.ConfigMaps, "default", "p")
		m.want(t, "p create, p delete")
		m.api.Remove(sim.ConfigMaps, "default", "v")
		m.want(t, "v delete")
		testkit.Count(t, log.String(), "looking", 2)
		testkit.Contains(t, log.String(), "name=v")
		if s := m.Snapshot(); s.Keys != nil {
			t.Errorf("left: %+v", s.Keys)
		}
		m.put(t, marked("p", "1"), "p create") // another object of that name
		m.put(t, marked("v", "1"), "v create")
		testkit.Count(t, log.String(), "looking", 2)
		m.SetLogLevel(verbose, slog.LevelDebug)
		m.put(t, marked("v", "2"), "v update")
		if s := m.Snapshot(); len(s.Keys) != 1 || s.Keys[0].LogLevel == nil {
			t.Errorf("the log level of an object that exists is gone: %+v", s.Keys)
		}
	})
}

// TestC11_UnwatchedObjectsPauseNothing: after Unwatch, the source's objects pause no key.
func TestC11_UnwatchedObjectsPauseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var src source.Source[types.NamespacedName]
		m := newMarks(t, func(c *cache.Cache) source.Source[types.NamespacedName] {
			src = views["typed"](c)
			return src
		})
		m.api.Put(sim.ConfigMaps, marked("a", "1", controller.PausedAnnotation, "yes"))
		m.start(t)
		m.want(t, "")
		ok(t, m.Unwatch(t.Context(), src))
		m.want(t, "a create")
	})
}

// TestC11_PausedUntilTheEnd: keys stay paused when the sources stop before the workers.
func TestC11_PausedUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarks(t, views["typed"])
		m.api.Put(sim.ConfigMaps, marked("a", "1", controller.PausedAnnotation, "yes"))
		warm, cool := context.WithCancel(t.Context())
		lead, end := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- m.Warm(warm) }()
		go func() { ended <- m.Lead(lead, lead) }()
		m.want(t, "")
		cool()
		m.want(t, "")
		end()
		ok(t, <-ended)
		ok(t, <-ended)
	})
}

// TestC11_RequeuedByAnnotation: any new value counts, a predicate does not hide it, and the reason
// names it.
func TestC11_RequeuedByAnnotation(t *testing.T) {
	const requeue = controller.RequeueAnnotation
	for name, view := range views {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMarks(t, view)
				m.api.Put(sim.ConfigMaps, marked("a", "1", requeue, "1"))
				m.start(t)
				m.want(t, "a create") // the value in the first event has no effect
				now := "a requeue by annotation setpoint.dev/requeue of default/a"
				m.put(t, marked("a", "2", requeue, "1"), "")
				m.put(t, marked("a", "2", requeue, "2"), now)
				m.put(t, marked("a", "3", requeue, "2"), "")
				m.put(t, marked("a", "3"), "")
				m.put(t, marked("a", "3", requeue, ""), "")
				m.put(t, marked("a", "3", requeue, "2"), now)
				m.put(t, marked("a", "3", requeue, "3", controller.PausedAnnotation, ""), "")
				m.put(t, marked("a", "3", requeue, "3"), now)
				m.put(t, marked("b", "1", requeue, "1"), "b create")
			})
		})
	}
}

// TestC11_AnnotationsCanBeIgnored: with the option, an object cannot pause or requeue its key.
func TestC11_AnnotationsCanBeIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarksWith(t, controller.Options{IgnoreAnnotations: true}, views["typed"])
		m.api.Put(sim.ConfigMaps, marked("a", "1", controller.PausedAnnotation, "true"))
		m.start(t)
		m.want(t, "a create")
		m.put(t, marked("a", "1", controller.PausedAnnotation, "true", controller.RequeueAnnotation, "1"), "")
	})
}

// TestC11_AnnotationsOfOthers: only annotations of the object that a key names count.
func TestC11_AnnotationsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMarks(t, func(c *cache.Cache) source.Source[types.NamespacedName] {
			return source.Kind(cache.For[*corev1.ConfigMap](c), handler.Map(func(_ context.Context, m *corev1.ConfigMap) ([]types.NamespacedName, error) {
				return []types.NamespacedName{{Name: "owner of " + m.Name}}, nil
			}))
		})
		m.start(t)
		m.put(t, marked("a", "1", controller.PausedAnnotation, ""), "owner of a create")
		m.put(t, marked("a", "1", controller.RequeueAnnotation, "1"), "owner of a update")
	})
}

// TestObservingDoesNotAllocate: most objects have no annotations.
func TestObservingDoesNotAllocate(t *testing.T) {
	queue := make(chan source.Sink[string], 1)
	c := newController(func(context.Context, string) (controller.Result, error) { return controller.Result{}, nil }, controller.Options{MaxInterrupts: 1})
	src := newSource("keys")
	src.queue = queue
	c.Watch(src)
	stop := start(t, c)
	observer := (<-queue).Observer
	typed := handler.Event{Op: handler.Update, Old: marked("a", "1", "x", "y"), New: marked("a", "2", "x", "y")}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "a", "namespace": "default", "annotations": map[string]any{"x": "y"}, "generation": int64(1),
	}}}
	for name, e := range map[string]handler.Event{"typed": typed, "unstructured": {Op: handler.Update, Old: u, New: u.DeepCopy()}} {
		testkit.Equal(t, testing.AllocsPerRun(1000, func() { observer.Observe("a", e) }), 0, name, "allocations")
	}
	ok(t, stop())
}
