// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// newFussy fails for each ConfigMap that has a value: that is the error.
func newFussy(api *sim.Server, o controller.Options, wrap func(error) error) *manager.Manager {
	m := newManager(api, nil)
	maps := cache.For[*corev1.ConfigMap](m.Cache())
	c := controller.New("fussy", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		switch c, err := maps.Get(ctx, key); {
		case err != nil:
			return controller.Result{}, ignoreNotFound(err)
		case c.Data["value"] != "":
			return controller.Result{}, wrap(errors.New(c.Data["value"]))
		}
		return controller.Result{}, nil
	}), o)
	c.Watch(source.Kind(maps, handler.Self()))
	m.Add(c)
	return m
}

// TestM7_AKeyThatFails: an operator that fails is idle, but Idle does not return nil.
func TestM7_AKeyThatFails(t *testing.T) {
	same := func(err error) error { return err }
	for what, c := range map[string]struct {
		o        controller.Options
		wrap     func(error) error
		terminal bool
	}{
		"backoff":     {wrap: same},
		"MaxAttempts": {o: controller.Options{MaxAttempts: 2}, wrap: same, terminal: true},
		"Terminal":    {wrap: controller.Terminal, terminal: true},
		"RetryAfter":  {wrap: func(err error) error { return controller.RetryAfter(err, time.Hour) }},
		"a panic":     {wrap: func(err error) error { panic(err) }},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put := func(name, value string) {
					api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": value}})
				}
				put("fine", "")
				put("b", "boom")
				put("a", "bang")
				m := newFussy(api, c.o, c.wrap)
				stop, result := start(t, m)
				failing, is := errors.AsType[*manager.FailingError](idleIn(t, m))
				if !is || failing.Manager != "test" || len(failing.Keys) != 2 {
					t.Fatalf("got %v", failing)
				}
				for i, want := range []string{"default/a bang", "default/b boom"} {
					k := failing.Keys[i]
					key, text, _ := strings.Cut(want, " ")
					if k.Controller != "fussy" || k.Key != key || !strings.Contains(k.Err, text) || k.Terminal != c.terminal || k.ReconcileID == "" || k.At.IsZero() {
						t.Errorf("got %+v, want %s", k, want)
					}
				}
				put("a", "")
				if text := fmt.Sprint(idleIn(t, m)); !strings.HasPrefix(text, `the manager "test" is idle, but keys fail: controller "fussy", default/b: `) {
					t.Errorf("with one key less: %s", text)
				}
				api.Remove(sim.ConfigMaps, "default", "b")
				ok(t, idleIn(t, m))
				stop()
				ok(t, result())
			})
		})
	}
}

// TestM7_AKeyThatFailsForAMoment: Idle waits for short backoffs, so a conflict is no failure.
func TestM7_AKeyThatFailsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"value": "x"}})
		attempts := 0
		m := newFussy(api, controller.Options{}, func(error) error {
			if attempts++; attempts < 4 {
				return apierrors.NewConflict(corev1.Resource("configmaps"), "a", errors.New("changed"))
			}
			return nil
		})
		stop, result := start(t, m)
		ok(t, idleIn(t, m))
		testkit.Equal(t, attempts, 4)
		stop()
		ok(t, result())
	})
}

// TestFailingError_NamesTheFirstKeys keeps the text short.
func TestFailingError_NamesTheFirstKeys(t *testing.T) {
	err := &manager.FailingError{Manager: "test"}
	for i := range 12 {
		err.Keys = append(err.Keys, manager.FailingKey{Controller: "c", FailedKey: controller.FailedKey{Key: fmt.Sprint("key-", i), Failure: controller.Failure{Err: "boom"}}})
	}
	text := err.Error()
	if !strings.HasPrefix(text, `the manager "test" is idle, but keys fail: controller "c", key-0: boom; `) ||
		!strings.HasSuffix(text, `controller "c", key-9: boom; and 2 more`) {
		t.Errorf("got %s", text)
	}
}

// TestM7_AForgottenAdd: without a controller, Idle and the log say so.
func TestM7_AForgottenAdd(t *testing.T) {
	for what, add := range map[string]func(*manager.Manager){
		"": func(*manager.Manager) {},
		"function": func(m *manager.Manager) {
			m.AddEverywhere("f", func(ctx context.Context) error { <-ctx.Done(); return nil })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			m := newManager(newAPI(), func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
			add(m)
			stop, result := start(t, m)
			testkit.Equal(t, fmt.Sprint(idleIn(t, m)), `the manager "test" has no controllers; pass them to Add`, what)
			synctest.Wait()
			stop()
			ok(t, result())
			if warned := strings.Contains(out.String(), "level=WARN msg=\"the manager has no controllers and no functions; pass them to Add\""); warned != (what == "") {
				t.Errorf("%s: the log is\n%s", what, out.String())
			}
		})
	}
}
