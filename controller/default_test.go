// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// defaults has a value in each field of Options that Default fills.
var defaults = controller.Options{
	Workers: 7, ReadYourWrites: time.Minute, Deadline: time.Hour, SlowAfter: time.Hour, Interrupt: 2, IgnoreAnnotations: true, RequireKinds: true, NamespaceTenants: true,
	Classes: []workqueue.ClassWeight{{Class: 5, Weight: 1}}, Backoff: workqueue.Exponential{Base: time.Minute}, Limiter: rate.NewLimiter(1, 1),
	MinInterval: time.Second, MaxWait: time.Minute, MaxAttempts: 9,
}

// TestDefault_FillsEveryZeroField: set fields stay. Grace and Logger have other defaults; Hooks are
// added elsewhere.
func TestDefault_FillsEveryZeroField(t *testing.T) {
	defaults := defaults
	defaults.Partition = new(shard.Group)
	filled, given := controller.Options{}.Or(defaults), controller.Options{}
	kind := reflect.TypeFor[controller.Options]()
	for i := range kind.NumField() {
		field := kind.Field(i).Name
		got := reflect.ValueOf(filled).Field(i)
		switch field {
		case "Grace", "Logger", "Hooks":
			if !got.IsZero() {
				t.Errorf("%s is filled", field)
			}
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
		kept.Deadline != given.Deadline || kept.ReadYourWrites != given.ReadYourWrites || kept.SlowAfter != given.SlowAfter || kept.Interrupt != given.Interrupt {
		t.Errorf("%+v became %+v", given, kept)
	}
	if o := (controller.Options{MinInterval: time.Hour}).Or(defaults); o.MaxWait != 0 {
		t.Errorf("MaxWait is filled although MinInterval is set: %v", o.MaxWait)
	}
}

// TestDefault_TheControllerRunsWithTheDefaults: its workers, its queue and its limit of attempts.
// Hooks that were added before stay.
func TestDefault_TheControllerRunsWithTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gave := 0
		ctx, cancel := context.WithCancel(t.Context())
		var infos []controller.Info
		c := controller.New("filled", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			info, _ := controller.InfoOf(ctx)
			infos = append(infos, info)
			return controller.Result{}, errFlaky
		}), controller.Options{Logger: silent})
		queue := c.Queue() // before Default, as a program may
		hooks := hook.Hooks{Controller: &hook.Controller{GaveUp: func(hook.GaveUp) { gave++; cancel() }}}
		c.Default(controller.Options{Hooks: hooks})
		c.Default(controller.Options{
			NamespaceTenants: true, Classes: defaults.Classes, Workers: 3, MaxAttempts: 2, Backoff: workqueue.Exponential{Base: time.Minute}, Hooks: hooks,
		})
		ok(t, c.Validate())
		queue.Add(types.NamespacedName{Namespace: "shop", Name: "a"})
		ok(t, c.Run(ctx))
		if len(infos) != 2 || infos[0].Class != 5 || infos[0].Tenant != "shop" || gave != 1 || c.Snapshot().Workers != 3 {
			t.Errorf("it ran as %+v with %d workers, and gave up %d times", infos, c.Snapshot().Workers, gave)
		}
		if wait := infos[1].Queued.Sub(infos[0].Queued); wait != time.Minute {
			t.Errorf("the retry came after %s", wait)
		}
		c.Default(controller.Options{Workers: 5}) // too late
		if n := c.Snapshot().Workers; n != 3 {
			t.Errorf("after Warm, Default set %d workers", n)
		}
	})
}

// TestDefault_Exceptions: SetWorkers and workqueue.Options win, keys without a namespace have no
// tenants, and a queue that had keys cannot change, which is an error if the defaults require it.
func TestDefault_Exceptions(t *testing.T) {
	make := func(o controller.Options) *controller.Controller[string] {
		return controller.NewWithQueue("exceptions", controller.Func[string](func(context.Context, string) (controller.Result, error) {
			return controller.Result{}, nil
		}), o, workqueue.Options[string]{Backoff: workqueue.Exponential{Base: time.Hour}})
	}
	c := make(controller.Options{})
	ok(t, c.SetWorkers(4))
	c.Default(defaults)
	ok(t, c.Validate())
	if n := c.Snapshot().Workers; n != 4 {
		t.Errorf("after SetWorkers(4) it has %d workers", n)
	}
	c.Queue().Add("a")
	if k, _ := c.Queue().Lookup("a"); k.State != workqueue.Waiting || k.Tenant != "" {
		t.Errorf("MinInterval of the defaults has not reached the queue: %+v", k)
	}

	c = make(controller.Options{})
	c.Queue().Add("a")
	c.Default(controller.Options{Workers: 3, NamespaceTenants: true, MaxAttempts: 5})
	ok(t, c.Validate()) // nothing of the queue changes
	c.Default(controller.Options{MinInterval: time.Second})
	err := c.Validate()
	for _, want := range []string{`controller "exceptions"`, "the queue had keys before", "set the options before the first add"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not have %q", err, want)
		}
	}
}

func TestOptionsValidate(t *testing.T) {
	ok(t, controller.Options{}.Validate())
	ok(t, defaults.Validate())
	err := controller.Options{MaxAttempts: -1, Workers: -2, MinInterval: -1, Classes: []workqueue.ClassWeight{{Weight: -1}}}.Validate()
	for _, want := range []string{"controller.Options.MaxAttempts: -1", "controller.Options.Workers: -2", "MinInterval is -1ns", "Classes[0].Weight is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
