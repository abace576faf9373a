// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// defaults has a value in each field of Options that Default fills.
var defaults = controller.Options{
	Workers: 7, ReadYourWrites: time.Minute, Deadline: time.Hour, SlowAfter: time.Hour, MaxInterrupts: 2, IgnoreAnnotations: true, RequireKinds: true, NamespaceTenants: true,
	Classes: []workqueue.ClassWeight{{Class: 5, Weight: 1}}, Backoff: workqueue.Exponential{Base: time.Minute}, Limiter: rate.NewLimiter(1, 1),
	MinInterval: time.Second, MaxWait: time.Minute, MaxAttempts: 9,
}

// TestDefault_FillsEveryZeroField: set fields stay. Grace and Logger have other defaults; Hook are
// added elsewhere.
func TestDefault_FillsEveryZeroField(t *testing.T) {
	defaults := defaults
	defaults.Partition, defaults.History = new(shard.Group), controller.NewHistory(1)
	filled, given := controller.Options{}.Or(defaults), controller.Options{}
	kind := reflect.TypeFor[controller.Options]()
	for i := range kind.NumField() {
		field := kind.Field(i).Name
		got := reflect.ValueOf(filled).Field(i)
		switch field {
		case "Grace", "Logger", "Hook":
			testkit.Equal(t, got.IsZero(), true, fmt.Sprintf("%s is filled", field))
			continue
		}
		if want := reflect.ValueOf(defaults).Field(i); want.IsZero() || !reflect.DeepEqual(got.Interface(), want.Interface()) {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
		if got.Kind() == reflect.Int || got.Kind() == reflect.Int64 {
			reflect.ValueOf(&given).Elem().Field(i).SetInt(int64(2 * time.Minute))
		}
	}
	if kept := given.Or(defaults); kept.Workers != given.Workers || kept.MinInterval != given.MinInterval || kept.MaxAttempts != given.MaxAttempts ||
		kept.Deadline != given.Deadline || kept.ReadYourWrites != given.ReadYourWrites || kept.SlowAfter != given.SlowAfter || kept.MaxInterrupts != given.MaxInterrupts {
		t.Errorf("%+v became %+v", given, kept)
	}
	testkit.Equal(t, (controller.Options{MinInterval: time.Hour}).Or(defaults).MaxWait, 0, "MaxWait is filled although MinInterval is set")
}

// TestDefault_TheControllerRunsWithTheDefaults: its workers, its queue and its limit of attempts.
// Hook that were added before stay.
func TestDefault_TheControllerRunsWithTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gave := 0
		ctx, cancel := context.WithCancel(t.Context())
		var infos []controller.Info
		c := controller.New("filled", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			info, _ := controller.InfoFromContext(ctx)
			infos = append(infos, info)
			return controller.Result{}, errFlaky
		}), controller.Options{Logger: silent})
		queue := c.Queue() // before Default, as a program may
		hooks := hook.On(func(*hook.GaveUp) { gave++; cancel() })
		c.Default(controller.Options{Hook: hooks})
		c.Default(controller.Options{
			NamespaceTenants: true, Classes: defaults.Classes, Workers: 3, MaxAttempts: 2, Backoff: workqueue.Exponential{Base: time.Minute}, Hook: hooks,
		})
		ok(t, c.Validate())
		queue.Add(types.NamespacedName{Namespace: "shop", Name: "a"})
		ok(t, c.Run(ctx))
		if len(infos) != 2 || infos[0].Class != 5 || infos[0].Tenant != "shop" || gave != 1 || c.Snapshot().Workers != 3 {
			t.Errorf("it ran as %+v with %d workers, and gave up %d times", infos, c.Snapshot().Workers, gave)
		}
		testkit.Equal(t, infos[1].Queued.Sub(infos[0].Queued), time.Minute, "the retry came after")
		c.Default(controller.Options{Workers: 5}) // too late
		testkit.Equal(t, c.Snapshot().Workers, 3, "after Warm, Default set workers")
	})
}

// TestDefault_Exceptions: Options.Workers and workqueue.Options win, and keys without a namespace
// have no tenants.
func TestDefault_Exceptions(t *testing.T) {
	make := func(o controller.Options) *controller.Controller[string] {
		return controller.NewWithQueue("exceptions", controller.Func[string](func(context.Context, string) (controller.Result, error) {
			return controller.Result{}, nil
		}), o, workqueue.Options[string]{Backoff: workqueue.Exponential{Base: time.Hour}})
	}
	synctest.Test(t, func(t *testing.T) {
		c := make(controller.Options{Logger: silent, Workers: 4})
		c.Default(defaults)
		ok(t, c.Validate())
		testkit.Equal(t, c.Snapshot().Workers, 4, "with 4 workers of its own it has")
		c.Queue().Add("a")
		stop := start(t, c)
		synctest.Wait()
		if k, _ := c.Queue().Lookup("a"); k.State != workqueue.Waiting || k.Tenant != "" {
			t.Errorf("MinInterval of the defaults has not reached the queue: %+v", k)
		}
		ok(t, stop())
	})
}

// TestDefault_KeepsEarlierAdds: keys that are added before the defaults are delivered with them,
// once each, with their class, delay and reasons. Pauses stay.
func TestDefault_KeepsEarlierAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var seen []string
		c := newController(func(ctx context.Context, key string) (controller.Result, error) {
			info, _ := controller.InfoFromContext(ctx)
			var why []string
			for _, r := range info.Reasons {
				why = append(why, r.Event)
			}
			seen = append(seen, fmt.Sprintf("%s %s %s after %s", key, info.Class, strings.Join(why, "+"), time.Since(began)))
			return controller.Result{}, nil
		}, controller.Options{Logger: silent})
		q := c.Queue()
		with := func(class workqueue.Class, event string, after time.Duration) workqueue.AddOptions {
			return workqueue.AddOptions{Class: class, After: after, Reason: workqueue.Reason{Event: event}}
		}
		c.Pause()
		c.PauseKey("paused")
		for range 3 {
			q.AddWith("a", with(workqueue.Background, "one", 0))
		}
		q.AddAll([]string{"b", "a", "paused"}, with(workqueue.Background, "two", 0))
		q.AddWith("later", with(workqueue.Interactive, "due", time.Minute))
		q.Add("none")
		c.Requeue("now")
		if k, known := q.Lookup("a"); !known || len(k.Reasons) != 2 {
			t.Errorf("before the start, the key is %+v, known: %t", k, known)
		}
		testkit.Equal(t, c.Snapshot().Paused, true)
		testkit.Len(t, c.Snapshot().Queue.Keys, 6)
		c.Default(controller.Options{Classes: append(workqueue.ThreeClasses(), workqueue.ClassWeight{Class: 5, Weight: 100}), MinInterval: time.Second})
		ok(t, c.Validate())
		time.Sleep(30 * time.Second)
		stop := start(t, c)
		time.Sleep(10 * time.Second)
		c.Resume()
		time.Sleep(time.Minute)
		c.ResumeKey("paused")
		time.Sleep(time.Minute)
		ok(t, stop())
		want := []string{
			"now interactive RequeueNow after 40s", "none normal Added after 40s", "a background one+two after 40s", "b background two after 40s",
			"later interactive due after 1m0s", "paused background two after 1m40s",
		}
		testkit.SlicesEqual(t, seen, want, "it reconciled")
	})
}

// TestWarm_LosesNoAdd: an add that began before the queue was built, and ends afterwards, is
// delivered.
func TestWarm_LosesNoAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		c := newController(func(_ context.Context, key string) (controller.Result, error) {
			seen = append(seen, key)
			return controller.Result{}, nil
		}, controller.Options{Logger: silent})
		var stop func() error
		c.Add(func(early *workqueue.Queue[string]) {
			if stop == nil {
				stop = start(t, c)
				synctest.Wait()
			}
			early.Add("a")
		})
		synctest.Wait()
		testkit.SlicesEqual(t, seen, []string{"a"}, "it reconciled")
		ok(t, stop())
	})
}

// TestQuiet_WaitsForEarlyAdds: a wait that begins before the queue is built ends after the adds.
func TestQuiet_WaitsForEarlyAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := newController(func(context.Context, string) (controller.Result, error) {
			time.Sleep(time.Second)
			return controller.Result{}, nil
		}, controller.Options{Logger: silent})
		c.Queue().Add("a")
		quiet := make(chan string, 1)
		go func() {
			taken, err := c.Quiet(t.Context())
			quiet <- fmt.Sprintf("%d after %s, %v", taken, time.Since(began), err)
		}()
		time.Sleep(5 * time.Second)
		stop := start(t, c)
		testkit.Equal(t, <-quiet, "1 after 6s, <nil>")
		ok(t, stop())
	})
}

func TestOptionsValidate(t *testing.T) {
	ok(t, controller.Options{}.Validate())
	ok(t, defaults.Validate())
	err := controller.Options{MaxAttempts: -1, Workers: -2, MinInterval: -1, Classes: []workqueue.ClassWeight{{Weight: -1}}}.Validate()
	for _, want := range []string{"controller.Options.MaxAttempts: -1", "controller.Options.Workers: -2", "MinInterval is -1ns", "Classes[0].Weight is -1"} {
		testkit.ErrorContains(t, err, want)
	}
}
