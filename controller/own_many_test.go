// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Own writes in numbers: many objects, several informers, for long.

// newOwning returns a failing whose key owns further Deployments.
func newOwning(t *testing.T, children int, o controller.Options, attempts ...attempt) *failing {
	t.Helper()
	toKey := handler.Func[types.NamespacedName](func(context.Context, handler.Event) ([]types.NamespacedName, error) {
		return []types.NamespacedName{{Namespace: "default", Name: "a"}}, nil
	})
	f := newFailingWith(t, o, toKey, attempts...)
	for i := range children {
		f.api.Put(sim.Deployments, workload(fmt.Sprint("child", i)))
	}
	return f
}

// patchChildren changes all without a resourceVersion.
func (f *failing) patchChildren(ctx context.Context, children int) {
	f.t.Helper()
	for i := range children {
		key := types.NamespacedName{Namespace: "default", Name: fmt.Sprint("child", i)}
		ok(f.t, unlocked["Patch, the spec"](ctx, f.deploys, key, int32(f.calls.n())))
	}
}

// TestC7_ManyWritesWithoutAProof: more events than a key keeps reasons.
func TestC7_ManyWritesWithoutAProof(t *testing.T) {
	for _, children := range []int{3, 12} {
		for _, most := range []int{0, 1} {
			t.Run(fmt.Sprintf("%d, at most %d attempts", children, most), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newOwning(t, children, controller.Options{MaxAttempts: most}, func(f *failing, ctx context.Context) error {
						f.patchChildren(ctx, children)
						return errFlaky
					})
					f.start()
					if at := f.after(time.Minute); len(at) < 6 || len(at) > 12 {
						t.Errorf("%d Reconciles in a minute: %v", len(at), at)
					}
				})
			})
		}
	}
}

// TestC7_EverLater: for hours, with the default backoff, and if the queue keeps no reasons.
func TestC7_EverLater(t *testing.T) {
	for name, q := range map[string]workqueue.Options[types.NamespacedName]{
		"constant": backoff, "default": {}, "no reasons": {Backoff: backoff.Backoff, Reasons: -1},
	} {
		longest := time.Hour
		if q.Backoff != nil {
			longest = 11 * time.Second
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := int32(0)
				patch := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
					n++
					_, err := client.For[*corev1.ConfigMap](r.client).Patch(ctx, key, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n))
					ok(t, err)
					return controller.Result{}, errFlaky
				}
				r := newRig(t, controller.Options{}, q, nil, slices.Repeat([]step{patch}, 5000)...)
				r.start()
				at := r.after(3 * time.Hour)
				if len(at) < 15 || len(at) > 1100 {
					t.Fatalf("%d attempts", len(at))
				}
				for i := 12; i < len(at)-1; i++ {
					if gap := at[i+1] - at[i]; gap < 8*time.Second || gap > longest {
						t.Fatalf("attempt %d of %d began %s after the one before: %v", i+1, len(at), gap, at[:i+2])
					}
				}
			})
		})
	}
}

// TestC7_AProgramsTimerStays: an event that waits does not replace it, and is forgotten once the
// key was delivered.
func TestC7_AProgramsTimerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
			n := f.calls.n()
			if n == 1 {
				f.Queue().AddWith(f.key, workqueue.AddOptions{After: 30 * time.Minute, Reason: workqueue.Reason{Source: "program", Event: "Expiry"}})
			}
			if n > 5 {
				return nil
			}
			ok(t, unlocked["ApplyStatus"](ctx, f.deploys, f.key, int32(n)))
			return errFlaky
		})
		f.start()
		f.want(time.Hour, append(unproven[:6:6], 30*time.Minute)...)
	})
}

// TestC13_ManyWritesSpin: of one object and of several, with one informer and with two.
func TestC13_ManyWritesSpin(t *testing.T) {
	two := func(c *controller.Controller[types.NamespacedName], all *cache.Cache) {
		c.Watch(source.Kind(cache.For[*appsv1.Deployment](all), handler.Self()))
		c.Watch(source.Kind(cache.ForScope[*metav1.PartialObjectMetadata](all, deployments), handler.Self()))
	}
	locked := func(f *failing, ctx context.Context) error {
		f.annotate(ctx, fmt.Sprint(f.calls.n()))
		return nil
	}
	patched := func(f *failing, ctx context.Context) error {
		return unlocked["Patch"](ctx, f.deploys, f.key, int32(f.calls.n()))
	}
	for name, f := range map[string]func(t *testing.T) *failing{
		"locked twice": func(t *testing.T) *failing {
			return newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
				f.annotate(ctx, fmt.Sprint(-f.calls.n()))
				return locked(f, ctx)
			})
		},
		"patched twice": func(t *testing.T) *failing {
			return newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
				ok(t, unlocked["Patch, the spec"](ctx, f.deploys, f.key, int32(f.calls.n())))
				return patched(f, ctx)
			})
		},
		"two informers, locked":  func(t *testing.T) *failing { return watching(t, controller.Options{}, two, locked) },
		"two informers, patched": func(t *testing.T) *failing { return watching(t, controller.Options{}, two, patched) },
		"3 objects": func(t *testing.T) *failing {
			return newOwning(t, 3, controller.Options{}, func(f *failing, ctx context.Context) error {
				f.patchChildren(ctx, 3)
				return nil
			})
		},
		"failing each second time": func(t *testing.T) *failing {
			return newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
				ok(t, patched(f, ctx))
				if f.calls.n()%2 == 0 {
					return nil
				}
				return errFlaky
			})
		},
		"terminal errors": func(t *testing.T) *failing {
			return newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
				ok(t, locked(f, ctx))
				return controller.Terminal(errFlaky)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := f(t)
				f.start()
				f.api.Lag(8 * time.Millisecond)
				if at := f.after(15 * time.Second); len(at) < 50 || len(at) > 135 {
					t.Errorf("%d Reconciles in 15 s", len(at))
				}
			})
		})
	}
}
