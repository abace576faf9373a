// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
)

func traceparent(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }

// traced is a controller for the ConfigMap a. A Secret makes its key due, too.
type traced struct {
	t       *testing.T
	api     *sim.Server
	results []error // of the next Reconciles; then nil
	found   chan []string
}

func newTraced(t *testing.T, scope cache.Scope) *traced {
	tr := &traced{t: t, found: make(chan []string, 100)}
	var all *cache.Cache
	tr.api, all = cluster(t, sim.ConfigMaps, sim.Secrets)
	c := controller.New("traced", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
		info, _ := controller.InfoFromContext(ctx)
		tr.found <- info.TraceParents()
		if len(tr.results) == 0 {
			return controller.Result{}, nil
		}
		err := tr.results[0]
		tr.results = tr.results[1:]
		return controller.Result{}, err
	}), controller.Options{Logger: silent})
	c.Watch(source.Kind(cache.ForScope[*corev1.ConfigMap](all, scope), handler.Self()))
	scope.Kind = corev1.SchemeGroupVersion.WithKind("Secret")
	c.Watch(source.Kind(cache.ForScope[*unstructured.Unstructured](all, scope), handler.Map(func(context.Context, *unstructured.Unstructured) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: "default", Name: "a"}}, nil
	})))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		ok(t, <-done)
	})
	return tr
}

func (tr *traced) meta(name, trace string) metav1.ObjectMeta {
	m := named(name)
	if trace != "" {
		m.Annotations = map[string]string{"tracing.k8s.io/traceparent": trace}
	}
	return m
}

func (tr *traced) configMap(trace string) {
	tr.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: tr.meta("a", trace)})
}

func (tr *traced) secret(name, trace string) {
	tr.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: tr.meta(name, trace)})
}

// want waits for the Reconciles that are due. The last one must find these traces.
func (tr *traced) want(what string, traces ...string) {
	tr.t.Helper()
	synctest.Wait()
	var last []string
	n := 0
	for ; len(tr.found) > 0; n++ {
		last = <-tr.found
	}
	testkit.NotEqual(tr.t, n, 0, what)
	testkit.SlicesEqual(tr.t, last, traces, what)
}

// TestTraceParents: of the key's object, and of those whose events made the key due.
func TestTraceParents(t *testing.T) {
	for form, scope := range map[string]cache.Scope{"packed": {Storage: cache.Packed}, "decoded": {Storage: cache.Decoded}} {
		t.Run(form, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTraced(t, scope)
				tr.configMap("")
				tr.want("no annotation")
				tr.configMap(traceparent(1))
				tr.want("the key's object", traceparent(1))
				tr.secret("b", traceparent(2))
				tr.want("another object", traceparent(1), traceparent(2))
				tr.secret("a", traceparent(2))
				tr.want("an object of the same name", traceparent(1), traceparent(2))
				tr.configMap(traceparent(1))
				tr.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: tr.meta("a", traceparent(1)), Data: map[string]string{"a": "b"}})
				tr.want("it is no longer a cause", traceparent(1))
				tr.secret("c", traceparent(1))
				tr.want("the same trace", traceparent(1))
				tr.secret("b", strings.Repeat("0", 55))
				tr.want("another format", traceparent(1))
				tr.secret("b", traceparent(3)+"-more")
				tr.want("too long", traceparent(1))

				tr.results = []error{errors.New("flaky")}
				tr.secret("b", traceparent(3))
				time.Sleep(time.Minute)
				tr.want("a retry, for which no event is the cause", traceparent(1))

				tr.api.Remove(sim.Secrets, "default", "b")
				tr.want("a deleted object", traceparent(1))
			})
		})
	}
}

// TestTraceParents_OfTheCause: another source has the same name, and an object of the same name.
func TestTraceParents_OfTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		found := make(chan []string, 100)
		c := controller.New("traced", controller.Func[string](func(ctx context.Context, _ string) (controller.Result, error) {
			info, _ := controller.InfoFromContext(ctx)
			found <- info.TraceParents()
			return controller.Result{}, nil
		}), controller.Options{Logger: silent})
		var apis []*sim.Server
		for n := range 2 {
			api := sim.NewServer(sim.Secrets)
			all := cacheAt(t, fmt.Sprint("c", n), api, cache.Options{})
			if n == 1 {
				api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("a")}) // b has another UID
			}
			api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "b", Annotations: map[string]string{"tracing.k8s.io/traceparent": traceparent(n + 1)},
			}})
			c.Watch(source.Kind(cache.For[*corev1.Secret](all), handler.Map(func(context.Context, *corev1.Secret) ([]string, error) { return []string{"key"}, nil })))
			apis = append(apis, api)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		for len(found) > 0 {
			<-found
		}
		s := apis[1].Object(sim.Secrets, "default", "b")
		s.SetLabels(map[string]string{"x": "y"})
		apis[1].Put(sim.Secrets, s)
		testkit.SlicesEqual(t, <-found, []string{traceparent(2)}, "the traces")
		stop()
		ok(t, <-done)
	})
}

// TestTraceParents_Few: a key has several causes after a pause.
func TestTraceParents_Few(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTraced(t, cache.Scope{})
		m := &corev1.ConfigMap{ObjectMeta: tr.meta("a", traceparent(1))}
		m.Annotations[controller.PausedAnnotation] = ""
		tr.api.Put(sim.ConfigMaps, m)
		synctest.Wait()
		for i := range 4 {
			tr.secret(fmt.Sprint("s", i), traceparent(20))
			tr.secret(fmt.Sprint("s", i), traceparent(i+2)) // the newest counts
		}
		synctest.Wait()
		tr.configMap(traceparent(1))
		tr.want("the key's object and 3 of 4 others", traceparent(1), traceparent(2), traceparent(3), traceparent(4))
	})
	if got := (controller.Info{}).TraceParents(); got != nil {
		t.Errorf("no Reconcile has the traces %q", got)
	}
}
