// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// writeAgain is a step that makes its key due by its own write.
func writeAgain(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.maps.Get(ctx, key)
	if err != nil {
		return controller.Result{}, err
	}
	m.Data = map[string]string{"now": time.Since(r.began).String()}
	_, err = r.update(ctx, m)
	return controller.Result{}, err
}

// TestC13_AKeyThatSpinsIsSlowedDown: it is reconciled a hundred times, then more and more rarely,
// down to once a second. The log has it once, with the cause. Other keys are unaffected.
func TestC13_AKeyThatSpinsIsSlowedDown(t *testing.T) {
	for name, tt := range map[string]struct {
		step step
		lag  time.Duration
		says string
	}{
		"by its RequeueAfter": {says: `cause="its RequeueAfter is shorter than 100ms"`, step: func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: 1}, nil
		}},
		"by a time that has passed": {says: `cause="its RequeueAfter is shorter than 100ms"`, step: func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: -time.Hour}, nil
		}},
		"by its own writes": {step: writeAgain, lag: 8 * time.Millisecond, says: `fields=.data.now cause="its own write: update configmaps default/a"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lines testkit.Buffer
				r := newRig(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, workqueue.Options[types.NamespacedName]{}, nil,
					slices.Repeat([]step{tt.step}, 5000)...)
				r.start()
				r.api.Lag(tt.lag)
				at := r.after(15 * time.Second)
				testkit.AtLeast(t, len(at), 110)
				testkit.AtMost(t, len(at), 130)
				if gap := at[len(at)-1] - at[len(at)-2]; gap < time.Second || gap > 1100*time.Millisecond {
					t.Errorf("the last ones are %s apart", gap)
				}
				testkit.AtMost(t, at[99], 2*time.Second)
				testkit.Count(t, lines.String(), "slowed down a key that keeps making itself due", 1)
				testkit.Contains(t, lines.String(), "key=default/a")
				testkit.Contains(t, lines.String(), tt.says)
			})
		})
	}
}

// TestC13_ForeignChangesAreNotDelayed: neither for a key that spins nor in a burst. A slowed key
// counts as busy, but not as failed.
func TestC13_ForeignChangesAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, slices.Repeat([]step{writeAgain}, 5000)...)
		r.start()
		r.api.Lag(time.Millisecond)
		at := r.after(15500 * time.Millisecond) // it waits for its second to pass
		last := at[len(at)-1]
		if look, _ := r.control.Queue().Lookup(types.NamespacedName{Namespace: "default", Name: "a"}); look.State != workqueue.Waiting || look.Attempts != 0 {
			t.Errorf("a key that is slowed down is %+v", look)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		testkit.NotEqual(t, testkit.Err(r.control.Quiet(soon)), nil, "a key that is slowed down does not count as busy")
		for i := range 50 {
			before := len(r.after(0))
			m := r.api.Object(sim.ConfigMaps, "default", "a")
			m.SetAnnotations(map[string]string{"change": fmt.Sprint(i)})
			r.api.Put(sim.ConfigMaps, m)
			at = r.after(5 * time.Millisecond)
			if len(at) == before {
				t.Fatalf("change %d: not reconciled at once, last at %s", i, last)
			}
		}
	})
}

// TestC13_OnlyKeysThatSpinAreRemembered: keys whose own write makes them due once are forgotten,
// and so are keys that poll at reasonable intervals.
func TestC13_OnlyKeysThatSpinAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poll := func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: 100 * time.Millisecond}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, slices.Concat([]step{writeAgain}, slices.Repeat([]step{poll}, 5000))...)
		r.start()
		testkit.AtLeast(t, len(r.after(100*time.Second)), 980)
		testkit.Equal(t, r.control.Spinning(), 0, "keys are remembered")
	})
}

// TestC13_Interrupts: without ReadYourWrites, MaxInterrupts does not change which keys are slowed
// down.
func TestC13_Interrupts(t *testing.T) {
	counts := map[int]int{}
	for _, most := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, controller.Options{ReadYourWrites: -1, MaxInterrupts: most}, workqueue.Options[types.NamespacedName]{}, nil,
				slices.Repeat([]step{writeAgain}, 500)...)
			r.start()
			r.api.Lag(8 * time.Millisecond)
			counts[most] = len(r.after(3 * time.Second))
		})
	}
	testkit.NotEqual(t, counts[0], 0, "Reconciles by MaxInterrupts")
	testkit.Equal(t, counts[0], counts[3], "Reconciles by MaxInterrupts")
}
