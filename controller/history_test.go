// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// reconcileAll reconciles keys once each, with a backoff longer than the test, and returns when
// all have been.
func reconcileAll[K comparable](t testing.TB, o controller.Options, keys []K, r controller.Func[K]) (c *controller.Controller[K], stop func()) {
	t.Helper()
	o.Logger, o.Backoff = silent, workqueue.Exponential{Base: time.Hour, Max: time.Hour}
	left := len(keys)
	done := make(chan struct{})
	c = controller.New("test", controller.Func[K](func(ctx context.Context, key K) (controller.Result, error) {
		if left--; left == 0 {
			defer close(done)
		}
		return r(ctx, key)
	}), o)
	c.Queue().AddAll(keys, workqueue.AddOptions{Reason: workqueue.Reason{Source: "test", Event: "create", Object: "default/x", ResourceVersion: "123456789"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	<-done
	return c, func() {
		cancel()
		testkit.Equal(t, <-ended, nil)
	}
}

func names(n int) (keys []types.NamespacedName) {
	for i := range n {
		keys = append(keys, types.NamespacedName{Namespace: "default", Name: fmt.Sprint("web-", i)})
	}
	return keys
}

func quiet(context.Context, types.NamespacedName) (controller.Result, error) {
	return controller.Result{}, nil
}

// TestHistory_Limit: the estimate stays within the limit, and does not exceed the memory in use by
// much.
func TestHistory_Limit(t *testing.T) {
	const limit = 4 << 20
	h := controller.NewHistory(limit)
	_, stop := reconcileAll(t, controller.Options{History: h}, names(50_000), func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, errFlaky
	})
	if n := h.Bytes(); n > limit || n < limit*9/10 {
		t.Errorf("50,000 failing keys take %d bytes, want at most %d, and nearly that", n, limit)
	}
	stop()
	testkit.Equal(t, h.Bytes(), 0, "bytes remain after the controller")
}

// TestHistory_Quiet: 100,000 healthy keys take less than 32 MB.
func TestHistory_Quiet(t *testing.T) {
	keys := names(100_000)
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // finalizers and pools keep garbage for a while
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	measure := func(h *controller.History) int64 {
		before := heap()
		_, stop := reconcileAll(t, controller.Options{History: h}, keys, quiet)
		defer stop()
		return heap() - before
	}
	h := controller.NewHistory(controller.DefaultHistory)
	none := measure(controller.NewHistory(0))
	with := measure(h)
	t.Logf("%.1f MB", float64(with-none)/1e6)
	testkit.AtMost(t, with-none, 32e6)
}

// TestHistory_HealthyFirst: at the limit, the healthy keys are forgotten first, then older
// Reconciles of the failing ones, then the keys that were not reconciled for the longest time.
func TestHistory_HealthyFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controller.NewHistory(7_500)
		c := controller.New("test", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			if strings.HasPrefix(key.Name, "failing") {
				return controller.Result{}, errors.New("no")
			}
			return controller.Result{}, nil
		}), controller.Options{History: h, Logger: silent, Backoff: workqueue.Exponential{Base: time.Minute, Max: time.Minute}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait() // see TestHistory_AnyKey
		var keys []types.NamespacedName
		add := func(prefix string, n int) {
			for i := range n {
				keys = append(keys, types.NamespacedName{Name: fmt.Sprint(prefix, i)})
				c.Queue().Add(keys[len(keys)-1])
			}
			synctest.Wait()
		}
		add("healthy", 10)
		add("failing", 5)
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		if got := c.PastRuns(keys); got != "failing0 6, failing1 6, failing2 6, failing3 6, failing4 6, healthy0 1, healthy1 1, healthy2 1, healthy3 1, healthy4 1, healthy5 1, healthy6 1, healthy7 1, healthy8 1, healthy9 1" {
			t.Errorf("before the limit: %s", got)
		}
		add("other", 60)
		if got := c.PastRuns(keys); strings.Contains(got, "healthy0 ") || !strings.Contains(got, "other59 1") || strings.Count(got, "failing") != 5 || strings.Count(got, " 6") != 5 {
			t.Errorf("after 60 healthy keys: %s", got)
		}
		add("failing-late", 60)
		if got := c.PastRuns(keys); strings.Contains(got, "other") || strings.Contains(got, " 6") || !strings.Contains(got, "failing-late59 1") || strings.Contains(got, "failing0 ") {
			t.Errorf("after 60 failing keys: %s", got)
		}
		testkit.Equal(t, c.PastParts(), fmt.Sprintf("%d keys, %[1]d runs, 0 with more, 0 kept", strings.Count(c.PastRuns(keys), " ")/2+1), "after all")
		stop()
		ok(t, <-ended)
	})
}

// numbered is a key that its text alone does not give.
type numbered struct{ n int }

func (k numbered) String() string { return fmt.Sprint("number ", k.n) }

// TestHistory_AnyKey: an idle key of any type is found by its text, and has its own history with
// the source of its event, however many sources there are.
func TestHistory_AnyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controller.NewHistory(controller.DefaultHistory)
		c := controller.New("test", controller.Func[numbered](func(_ context.Context, key numbered) (controller.Result, error) {
			if key.n%2 == 1 {
				return controller.Result{}, controller.Terminal(errFlaky)
			}
			return controller.Result{}, nil
		}), controller.Options{History: h, Logger: silent})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait() // a key that is added while Run builds the queue may be delivered twice
		const n = 600
		for round := range 4 {
			for i := range n {
				source := fmt.Sprintf("source %d", i)
				c.Queue().AddWith(numbered{i}, workqueue.AddOptions{Reason: workqueue.Reason{Source: source, Event: "update", Object: fmt.Sprint("a/", i), ResourceVersion: fmt.Sprint(1 + round)}})
			}
			synctest.Wait()
		}
		for i := range n {
			a, known := c.ExplainKey(fmt.Sprint("number ", i))
			past := slices.DeleteFunc(a.Evidence, func(line string) bool { return !strings.HasPrefix(line, "Reconcile until") })
			if want := 2 + 2*(i%2); !known || len(past) != want {
				t.Fatalf("number %d, known %t, has %d Reconciles, want %d", i, known, len(past), want)
			}
			for past, line := range past {
				if want := fmt.Sprintf("because of update of a/%d at version %d, by source %d", i, 4-past, i); !strings.HasSuffix(line, want) {
					t.Fatalf("number %d, Reconcile %d from the end: %s; want %s", i, past, line, want)
				}
			}
		}
		_, known := c.ExplainKey("number 600")
		testkit.Equal(t, known, false, "a key that was never added is known")
		stop()
		ok(t, <-ended)
		testkit.Equal(t, h.Bytes(), 0, "bytes remain after the controller")
	})
}

// TestHistory_ForgetsAll: nothing is left of what is forgotten, also of keys of any type and with
// causes that few share.
func TestHistory_ForgetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controller.New("test", controller.Func[numbered](func(context.Context, numbered) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{History: controller.NewHistory(100), Logger: silent})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for i := range 600 {
			c.Queue().AddWith(numbered{i}, workqueue.AddOptions{Reason: workqueue.Reason{Source: fmt.Sprint(i), Event: "update", Object: "other/object"}})
		}
		synctest.Wait()
		testkit.Equal(t, c.PastParts(), "0 keys, 0 runs, 0 with more, 0 kept", "with room for no key")
		stop()
		ok(t, <-ended)
	})
}

// TestHistory_KeepsKeysInUse: a key that is reconciled again and again is not forgotten for keys
// that were reconciled once since.
func TestHistory_KeepsKeysInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controller.New("test", controller.Func[string](func(context.Context, string) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{History: controller.NewHistory(15_000), Logger: silent})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		for i := range 400 {
			for _, key := range []string{"often", fmt.Sprint("once ", i)} {
				c.Queue().Add(key)
				synctest.Wait()
			}
			if got := c.PastRuns([]string{"often"}); i > 0 && got != "often 2" {
				t.Fatalf("known after %d other keys: %q", i, got)
			}
		}
		testkit.Equal(t, c.PastRuns([]string{"once 0", "once 399"}), "once 399 1", "known")
		stop()
		ok(t, <-ended)
	})
}
