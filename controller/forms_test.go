// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// forms is a controller that watches ConfigMaps with one informer and reads them with another one,
// from a cache of its own, so that a rule can delay it.
type forms struct {
	t             *testing.T
	api           *sim.Server
	watches       *cache.Cache
	reads         *cache.Cache
	watching      *rest.Config // of the cache watches
	reading       *rest.Config // of the cache reads
	o             controller.Options
	control       *controller.Controller[types.NamespacedName]
	began         time.Time
	get           func(ctx context.Context, key types.NamespacedName) (metav1.Object, error)
	mu            sync.Mutex // guards what follows
	log           []string
	awaited       []hook.Awaited
	reconcileTook time.Duration
}

func newForms(t *testing.T) *forms {
	t.Helper()
	f := &forms{t: t, api: sim.NewServer(sim.ConfigMaps, sim.Secrets)}
	run := func() (*cache.Cache, *rest.Config) {
		cfg := f.api.Config()
		cl, err := client.New(cfg, client.Options{})
		ok(t, err)
		c := cache.New(cl, cache.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			ok(t, <-done)
		})
		return c, cfg
	}
	f.watches, f.watching = run()
	f.reads, f.reading = run()
	f.o = controller.Options{Logger: silent, Hook: hook.On(func(a *hook.Awaited) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.awaited = append(f.awaited, *a)
	})}
	return f
}

// read makes Reconcile read a handle. It notes what it sees.
func read[T cache.Object](f *forms, from *cache.Handle[T]) *cache.Handle[T] {
	f.get = func(ctx context.Context, key types.NamespacedName) (metav1.Object, error) {
		o, err := from.Get(ctx, key)
		return o, err
	}
	return from
}

// start runs the controller until the test ends.
func (f *forms) start(sources []source.Source[types.NamespacedName], reads ...controller.Readable) {
	f.t.Helper()
	f.control = controller.New("forms", controller.Func[types.NamespacedName](f.reconcile), f.o)
	for _, s := range sources {
		f.control.Watch(s)
	}
	f.control.Reads(reads...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.control.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		ok(f.t, <-ended)
	})
	time.Sleep(5 * time.Second)
	synctest.Wait()
	f.began = time.Now()
	f.take()
}

func (f *forms) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	saw := "absent"
	if o, err := f.get(ctx, key); err == nil {
		saw = o.GetLabels()["v"]
	} else if !strings.Contains(err.Error(), "not found") {
		return controller.Result{}, err
	}
	if controller.Stale(ctx) != nil {
		saw += " stale"
	}
	f.mu.Lock()
	f.log = append(f.log, fmt.Sprintf("%s: %s sees %s", time.Since(f.began).Round(time.Millisecond), key.Name, saw))
	took := f.reconcileTook
	f.mu.Unlock()
	time.Sleep(took)
	return controller.Result{}, nil
}

func (f *forms) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// want compares what was reconciled since the last call, once d has passed. Workers may take two
// keys of one moment in any order.
func (f *forms) want(d time.Duration, want ...string) {
	f.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	got := f.take()
	of := func(reconcile string) string { before, _, _ := strings.Cut(reconcile, " sees"); return before }
	for _, list := range [][]string{got, want} {
		slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(of(a), of(b)) })
	}
	testkit.SlicesEqual(f.t, got, want, "reconciled")
	f.began = time.Now()
}

// wantLast allows a Reconcile between two events of one moment.
func (f *forms) wantLast(d time.Duration, last, between string) {
	f.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := f.take(); !slices.Equal(got, []string{last}) && !slices.Equal(got, []string{between, last}) {
		f.t.Errorf("reconciled %q, want %q last", got, last)
	}
	f.began = time.Now()
}

func (f *forms) put(name, v string, more ...string) {
	m := &corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"v": v}}
	m.Labels = map[string]string{"v": v}
	for _, l := range more {
		key, value, _ := strings.Cut(l, "=")
		m.Labels[key] = value
	}
	f.api.Put(sim.ConfigMaps, m)
}

func (f *forms) remove(name string) { f.api.Remove(sim.ConfigMaps, "default", name) }

// lag delays the watches of the cache that is read.
func (f *forms) lag(d time.Duration) *fault.Fault {
	return f.api.Add(fault.Rule{Match: fault.Match{Config: f.reading, Verbs: []string{"watch"}}, Lag: d})
}

func self[T cache.Object](of *cache.Handle[T], p ...handler.Predicate) []source.Source[types.NamespacedName] {
	return []source.Source[types.NamespacedName]{source.Kind(of, handler.Self(), p...)}
}

// TestC6_TwoFormsOfAKind: a Reconcile sees the object of the event that made its key due, whatever
// the informer that it reads, and a worker is free meanwhile.
func TestC6_TwoFormsOfAKind(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	everything := func(f *forms) []source.Source[types.NamespacedName] {
		return self(cache.For[*corev1.ConfigMap](f.watches))
	}
	for what, wire := range map[string]func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable){
		"metadata and typed": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return self(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: kind})), read(f, cache.For[*corev1.ConfigMap](f.reads))
		},
		"typed and metadata": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return everything(f), read(f, cache.ForScope[*metav1.PartialObjectMetadata](f.reads, cache.Scope{Kind: kind}))
		},
		"typed and unstructured": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return everything(f), read(f, cache.ForScope[*unstructured.Unstructured](f.reads, cache.Scope{Kind: kind}))
		},
		"packed and decoded": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return everything(f), read(f, cache.ForScope[*corev1.ConfigMap](f.reads, cache.Scope{Storage: cache.Decoded}))
		},
		"everything and a namespace": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return everything(f), read(f, cache.ForScope[*corev1.ConfigMap](f.reads, cache.Scope{Namespaces: cache.NewSet("default", "other")}))
		},
		"a namespace and everything": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return self(cache.ForScope[*corev1.ConfigMap](f.watches, cache.Scope{Namespaces: cache.NewSet("default")})), read(f, cache.For[*corev1.ConfigMap](f.reads))
		},
		"a selector and everything": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return self(cache.ForScope[*corev1.ConfigMap](f.watches, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"app": "a"})})), read(f, cache.For[*corev1.ConfigMap](f.reads))
		},
		"everything and a selector": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return everything(f), read(f, cache.ForScope[*corev1.ConfigMap](f.reads, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"app": "a"})}))
		},
		"metadata and a name": func(f *forms) ([]source.Source[types.NamespacedName], controller.Readable) {
			return self(cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: kind})),
				read(f, cache.ForScope[*corev1.ConfigMap](f.reads, cache.Scope{Fields: fields.OneTermNotEqualSelector("metadata.name", "c")}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForms(t)
				f.o.Workers = 1
				sources, reads := wire(f)
				f.start(sources, reads)
				f.lag(lag)
				f.put("a", "1", "app=a")
				f.want(time.Second, "500ms: a sees 1")
				f.put("a", "2", "app=a")
				f.put("b", "1", "app=a")
				f.want(time.Second, "500ms: a sees 2", "500ms: b sees 1")
				f.remove("a")
				f.want(time.Second, "500ms: a sees absent")
				f.remove("b")
				f.put("b", "2", "app=a")
				f.wantLast(time.Second, "500ms: b sees 2", "500ms: b sees absent")
				for _, a := range f.awaited {
					testkit.Equal(t, a.Expired, false, "it gave up")
					testkit.Equal(t, a.Doubts, nil, "it gave up")
				}
			})
		})
	}
}
