// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/term"
)

// lines is a buffer for several goroutines.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// TestL2_WritesWithoutATermAreInTheLog: once for each resource, and only with leader election.
func TestL2_WritesWithoutATermAreInTheLog(t *testing.T) {
	for name, test := range map[string]struct {
		options func(*manager.Options)
		want    int
	}{"elected": {elected, 1}, "alone": {nil, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put(api, "a")
				var out lines
				m := newManager(api, func(o *manager.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&out, nil))
					if test.options != nil {
						test.options(o)
					}
				})
				configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					maps := client.For[*corev1.ConfigMap](m.Client())
					for _, with := range []context.Context{ctx, term.Without(t.Context()), t.Context(), t.Context()} {
						if err := maps.Delete(with, types.NamespacedName{Namespace: key.Namespace, Name: "missing"}); err == nil {
							t.Error("it was there")
						}
					}
					return controller.Result{}, nil
				})
				stop, result := start(t, m)
				pass(time.Minute)
				stop()
				ok(t, result())
				if n := strings.Count(out.text.String(), "a write without a term of leadership"); n != test.want {
					t.Errorf("%d lines, want %d:\n%s", n, test.want, out.text.String())
				}
			})
		})
	}
}

// TestLog_AReconcileThatWritesWithAnotherContext: with and without leader election, once for each
// verb and resource, also in a goroutine of the Reconcile. Intentional writes and writes of others
// are not logged.
func TestLog_AReconcileThatWritesWithAnotherContext(t *testing.T) {
	for name, option := range map[string]func(*manager.Options){"elected": elected, "alone": func(*manager.Options) {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put(api, "a")
				var out lines
				m := newManager(api, func(o *manager.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&out, nil))
					option(o)
				})
				maps := client.For[*corev1.ConfigMap](m.Client())
				remove := func(ctx context.Context) {
					if err := maps.Delete(ctx, types.NamespacedName{Namespace: "default", Name: "missing"}); err == nil {
						t.Error("it was there")
					}
				}
				m.AddEverywhere("janitor", func(context.Context) error {
					remove(context.Background())
					return nil
				})
				configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					for _, with := range []context.Context{ctx, term.Without(t.Context()), ledger.Without(t.Context())} {
						remove(with)
					}
					if key.Name == "b" {
						remove(t.Context())
						remove(t.Context())
					}
					if key.Name == "c" {
						var own sync.WaitGroup
						own.Go(func() {
							_, _ = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
						})
						own.Wait()
					}
					return controller.Result{}, nil
				})
				stop, result := start(t, m)
				pass(time.Minute)
				const says = `level=WARN msg="a Reconcile writes with a context that is not its own`
				if strings.Contains(out.text.String(), says) {
					t.Errorf("the log has it before it happens:\n%s", out.text.String())
				}
				put(api, "b")
				put(api, "c")
				pass(time.Minute)
				stop()
				ok(t, result())
				for _, about := range []string{"controller=website key=default/b verb=delete resource=configmaps userAgent=", "controller=website key=default/c verb=create resource=configmaps userAgent="} {
					if n := strings.Count(out.text.String(), about); n != 1 {
						t.Errorf("%q: %d times", about, n)
					}
				}
				if n := strings.Count(out.text.String(), says); n != 2 {
					t.Errorf("%d lines:\n%s", n, out.text.String())
				}
			})
		})
	}
}
