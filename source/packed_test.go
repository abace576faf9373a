// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// packMaps makes the setup's handle packed.
func (s *setup) packMaps(scope cache.Scope) *setup {
	scope.Storage = cache.Packed
	s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, scope)
	return s
}

// watcher is a predicate that records the Go types that it gets.
type watcher struct {
	metadata bool
	types    map[string]bool
}

func (s *watcher) Keep(e handler.Event) bool {
	for _, o := range []handler.Object{e.Old, e.New} {
		if o != nil {
			s.types[fmt.Sprintf("%T", o)] = true
		}
	}
	return e.Object().GetLabels()["drop"] == ""
}

func (*watcher) String() string { return "watcher" }

func (s *watcher) MetadataOnly() bool { return s.metadata }

// typed is a predicate without MetadataOnly.
type typed struct{ handler.Predicate }

// TestPacked_Predicates: a predicate that is MetadataOnly gets packed objects, any other the Go
// type, also inside Named, And, Or, Not and InClass.
func TestPacked_Predicates(t *testing.T) {
	for name, wrap := range map[string]func(handler.Predicate) handler.Predicate{
		"alone": func(p handler.Predicate) handler.Predicate { return p },
		"named": func(p handler.Predicate) handler.Predicate { return handler.Named("n", p) },
		"and":   func(p handler.Predicate) handler.Predicate { return handler.And(handler.GenerationChanged, p) },
		"or": func(p handler.Predicate) handler.Predicate {
			return handler.Or(handler.Not(handler.GenerationChanged), p, p)
		},
		"not":   func(p handler.Predicate) handler.Predicate { return handler.Not(handler.Not(p)) },
		"class": func(p handler.Predicate) handler.Predicate { return handler.InClass(workqueue.Interactive, p) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newSetup(t).packMaps(cache.Scope{}), &log{}
				defer s.stop()
				s.put("a=1")
				meta, whole := &watcher{metadata: true, types: map[string]bool{}}, &watcher{types: map[string]bool{}}
				src := source.Kind(s.maps, handler.Self(), wrap(meta))
				other := source.Kind(s.maps, handler.Self(), wrap(typed{whole}))
				s.start(src, l, nil)
				s.run(func(ctx context.Context) error { return other.Run(ctx, sink(other, l, nil)) })
				synced(t, src)
				synced(t, other)
				s.put("a=2")
				s.remove("a")
				synctest.Wait()
				if len(meta.types) != 1 || !meta.types["*packed.Object"] {
					t.Errorf("the predicate for metadata got %v", meta.types)
				}
				if len(whole.types) != 1 || !whole.types["*v1.ConfigMap"] {
					t.Errorf("the other one got %v", whole.types)
				}
				if got := len(l.takeAdded()); name == "alone" && got != 6 {
					t.Errorf("%d keys", got)
				}
			})
		})
	}
}

// TestPacked_Handlers (F1): Where, Map, Funcs and InClass see the same objects, and choose the same
// keys and classes, as with decoded objects.
func TestPacked_Handlers(t *testing.T) {
	run := func(t *testing.T, storage cache.Storage) string {
		var log1, log2 log
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			defer s.stop()
			s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, cache.Scope{Storage: storage})
			s.put("a=1", "b=1")
			data := func(m *corev1.ConfigMap) []name { return []name{{Name: m.Name + m.Data["data"]}} }
			one := source.Kind(s.maps, handler.Map(func(_ context.Context, m *corev1.ConfigMap) ([]name, error) { return data(m), nil }),
				handler.Where(func(_, m *corev1.ConfigMap) bool { return m == nil || m.Data["data"] != "2" }),
				handler.InClass(workqueue.Interactive, handler.Where(func(old, _ *corev1.ConfigMap) bool { return old != nil && old.Data["data"] == "2" })))
			two := source.Kind(s.maps, handler.Funcs[*corev1.ConfigMap, name]{
				Create: func(_ context.Context, m *corev1.ConfigMap) ([]name, error) { return data(m), nil },
				Update: func(_ context.Context, o, n *corev1.ConfigMap) ([]name, error) {
					return append(data(o), data(n)...), nil
				},
				Delete: func(_ context.Context, m *corev1.ConfigMap) ([]name, error) { return data(m), nil },
			})
			s.start(one, keysOf{&log1}, nil)
			s.run(func(ctx context.Context) error { return two.Run(ctx, source.Sink[name]{Queue: keysOf{&log2}}) })
			synced(t, one)
			synced(t, two)
			for n := range 4 {
				s.put(fmt.Sprint("a=", n))
			}
			s.remove("b")
			synctest.Wait()
			testkit.Equal(t, replay(t, one), nil)
		})
		sorted := func(l *log) string {
			slices.Sort(l.events[:min(2, len(l.events))])
			return strings.Join(l.events, ", ")
		}
		return sorted(&log1) + "\n" + sorted(&log2)
	}
	if decoded, packed := run(t, cache.Decoded), run(t, cache.Packed); decoded != packed || len(decoded) < 100 {
		t.Errorf("decoded: %s\npacked: %s", decoded, packed)
	}
}

// keysOf is a queue that records keys with their class and event.
type keysOf struct{ *log }

// AddAll implements source.Queue.
func (k keysOf) AddAll(keys []name, how workqueue.AddOptions) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, fmt.Sprint(how.Reason.Event, " ", how.Class, " ", keys, " ", how.Reason.UID != "", how.Reason.ResourceVersion != ""))
}

// TestPacked_Decodes: handlers and predicates of metadata decode nothing. Others, and an index,
// share one decoded object of each event.
func TestPacked_Decodes(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties the shared objects
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t).packMaps(cache.Scope{}), &log{}
		defer s.stop()
		other := cache.ForScope[*corev1.ConfigMap](s.cache, cache.Scope{Storage: cache.Packed, Names: cache.NewSet(name{Namespace: "default", Name: "a"})})
		data := cache.NewIndex(other, "data", func(m *corev1.ConfigMap) []string { return []string{m.Data["data"]} })
		all := handler.Where(func(_, _ *corev1.ConfigMap) bool { return true })
		src := source.Kind(s.maps, handler.Self(), handler.GenerationChanged, handler.InClass(workqueue.Interactive, handler.LabelsChanged))
		sources := []source.Source[name]{src, source.Kind(other, handler.Self(), all), source.Kind(other, l, all)}
		s.put("a=0")
		s.start(src, l, nil)
		for _, also := range sources[1:] {
			s.run(func(ctx context.Context) error { return also.Run(ctx, source.Sink[name]{Queue: l}) })
		}
		for _, each := range sources {
			synced(t, each)
		}
		before := other.State().Decodes
		for n := range 1000 {
			s.put(fmt.Sprint("a=", n+1))
			synctest.Wait()
		}
		testkit.Equal(t, s.maps.State().Decodes, 0, "Self and GenerationChanged: decodes")
		testkit.Equal(t, other.State().Decodes-before, 1000, "two sources and an index: decodes of 1000 events")
		testkit.Len(t, testkit.Must(data.List(t.Context(), "1000", cache.ListOptions{})), 1)
	})
}

// TestPacked_Resync: a resync and a Replay deliver each packed object as an update without a
// change.
func TestPacked_Resync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t).packMaps(cache.Scope{Resync: time.Minute}), &log{}
		defer s.stop()
		s.put("a=1", "b=1")
		same := true // read after synctest.Wait
		l.fail = func(e handler.Event) error {
			same = same && (e.Op != handler.Update || e.Old == e.New)
			return nil
		}
		src := s.follow(l)
		again := func(want ...string) {
			t.Helper()
			got := strings.Split(l.take(), ", ")
			if slices.Sort(got); !slices.Equal(got, want) || !same {
				t.Errorf("got %s; same: %t", got, same)
			}
			for _, how := range l.takeAdded() {
				testkit.Equal(t, how.Class, workqueue.Background)
			}
		}
		l.take()
		l.takeAdded()
		time.Sleep(67 * time.Second)
		synctest.Wait()
		again("update a 1>1", "update b 1>1")
		testkit.Equal(t, replay(t, src), nil)
		again("create a ->1 initial", "create b ->1 initial")
	})
}

// Gauge is a custom resource whose objects may not fit its type.
type Gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Size int `json:"size"`
}

// DeepCopyObject implements runtime.Object.
func (g *Gauge) DeepCopyObject() runtime.Object {
	c := *g
	g.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// GaugeList is a list of Gauges.
type GaugeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Gauge `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *GaugeList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]Gauge(nil), l.Items...)
	return &c
}

var gauges = sim.Resource{Group: "test.dev", Version: "v1", Kind: "Gauge", Name: "gauges", Namespaced: true}

func putGauge(api *sim.Server, name string, size any) {
	u := &unstructured.Unstructured{Object: map[string]any{"size": size}}
	u.SetNamespace("default")
	u.SetName(name)
	api.Put(gauges, u)
}

// TestPacked_Undecodable (F1, S2): if an object does not fit its Go type, a handler that needs only
// metadata gets its events; one that needs the object gets those with a readable new state, and
// the delete. An update whose old state is unreadable is a create for it.
func TestPacked_Undecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(gauges)
		known := runtime.NewScheme()
		known.AddKnownTypes(schema.GroupVersion{Group: "test.dev", Version: "v1"}, &Gauge{}, &GaugeList{})
		c, err := client.New(api.Config(), client.Options{Scheme: known})
		testkit.NoError(t, err)
		s := &setup{t: t, api: api, cache: cache.New(c, cache.Options{Storage: cache.Packed})}
		defer s.stop()
		h := cache.For[*Gauge](s.cache)
		var names, sizes, kept log
		describe := func(o *Gauge) string { return fmt.Sprint(o.Name, "=", o.Size) }
		record := func(what string, objects ...*Gauge) ([]name, error) {
			for _, o := range objects {
				what += " " + describe(o)
			}
			sizes.mu.Lock()
			defer sizes.mu.Unlock()
			sizes.events = append(sizes.events, what)
			return nil, nil
		}
		meta := source.Kind(h, handler.Self())
		whole := source.Kind(h, handler.Funcs[*Gauge, name]{
			Create: func(_ context.Context, g *Gauge) ([]name, error) { return record("create", g) },
			Update: func(_ context.Context, o, n *Gauge) ([]name, error) { return record("update", o, n) },
			Delete: func(_ context.Context, g *Gauge) ([]name, error) { return record("delete", g) },
		})
		filtered := source.Kind(h, handler.Self(), handler.Where(func(_, _ *Gauge) bool { return true }))
		s.start(meta, keysOf{&names}, nil)
		s.run(func(ctx context.Context) error { return whole.Run(ctx, source.Sink[name]{Queue: &sizes}) })
		s.run(func(ctx context.Context) error { return filtered.Run(ctx, source.Sink[name]{Queue: keysOf{&kept}}) })
		synced(t, meta)
		expect := func(metadata bool, event string) {
			t.Helper()
			synctest.Wait()
			renamed, left := names.take(), kept.take()
			testkit.Equal(t, renamed != "", metadata, renamed)
			testkit.Equal(t, sizes.take(), event, "Funcs got")
			testkit.Equal(t, left != "", event != "", left)
		}
		putGauge(api, "a", "large")
		expect(true, "")
		putGauge(api, "a", int64(1))
		expect(true, "create a=1")
		putGauge(api, "a", int64(2))
		expect(true, "update a=1 a=2")
		putGauge(api, "a", "huge")
		expect(true, "")
		testkit.NotEqual(t, len(filtered.Status().State().Dropped), 0)
		testkit.Contains(t, filtered.Status().State().Note, "default/a: it cannot be decoded")
		testkit.Equal(t, replay(t, whole), nil)
		expect(false, "")
		api.Remove(gauges, "default", "a")
		expect(true, "delete a=0")
		testkit.Equal(t, h.State().BrokenCount, 0)
		testkit.Equal(t, h.State().Phase, hook.Synced)
	})
}

// TestPacked_Adopted: who adopts a packed handle's informer gets Go objects.
func TestPacked_Adopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newSetup(t).packMaps(cache.Scope{}), &log{}
		defer s.stop()
		s.put("a=1")
		src := source.Kind(adopted(factory.New(s.cache, nil).Core().V1().ConfigMaps().Informer()), handler.Handler[name](plain{l}))
		s.start(src, l, nil)
		synced(t, src)
		s.put("a=2")
		s.remove("a")
		synctest.Wait()
		testkit.Equal(t, l.take(), "create a ->1 initial, update a 1>2, delete a 2>-")
	})
}

// plain fails for packed objects.
type plain struct{ *log }

// Keys implements handler.Handler.
func (p plain) Keys(ctx context.Context, e handler.Event) ([]name, error) {
	for _, o := range []handler.Object{e.Old, e.New} {
		if _, ok := o.(*packed.Object); ok {
			panic("it is packed")
		}
		if _, err := json.Marshal(o); err != nil {
			return nil, err
		}
	}
	return p.log.Keys(ctx, e)
}
