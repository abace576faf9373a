// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/source"
)

// writeFunc sets a field of the Deployment that depends on value.
type writeFunc func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error

// unlocked are writes without a resourceVersion: the answer alone does not show who made its
// version.
var unlocked = map[string]writeFunc{
	"PatchStatus, merge": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.PatchStatus(ctx, key, types.MergePatchType, fmt.Appendf(nil, `{"status":{"replicas":%d}}`, value))
		return err
	},
	"PatchStatus, a condition": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.PatchStatus(ctx, key, types.StrategicMergePatchType, fmt.Appendf(nil,
			`{"status":{"conditions":[{"type":"Progressing","status":"False","message":"attempt %d"}]}}`, value))
		return err
	},
	"PatchStatus, JSON": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.PatchStatus(ctx, key, types.JSONPatchType, fmt.Appendf(nil, `[{"op":"add","path":"/status/replicas","value":%d}]`, value))
		return err
	},
	"ApplyStatus": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.ApplyStatus(ctx, appsac.Deployment(key.Name, key.Namespace).WithStatus(appsac.DeploymentStatus().WithReplicas(value)))
		return err
	},
	"Patch": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.Patch(ctx, key, types.StrategicMergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"value":"%d"}}}`, value))
		return err
	},
	"Patch, the spec": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.Patch(ctx, key, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"minReadySeconds":%d}}`, value))
		return err
	},
	"Apply": func(ctx context.Context, w client.Writer[*appsv1.Deployment], key types.NamespacedName, value int32) error {
		_, err := w.Apply(ctx, appsac.Deployment(key.Name, key.Namespace).WithLabels(map[string]string{"value": fmt.Sprint(value)}))
		return err
	},
}

// attempt is what one Reconcile of a failing does.
type attempt func(f *failing, ctx context.Context) error

// failing is a controller of one Deployment whose Reconciles fail with a backoff of 10 s.
type failing struct {
	*controller.Controller[types.NamespacedName]

	t        *testing.T
	api      *sim.Server
	client   *client.Client
	deploys  client.Writer[*appsv1.Deployment]
	key      types.NamespacedName
	attempts []attempt // the last one repeats
	calls    calls
	outcomes outcomes
}

func newFailing(t *testing.T, o controller.Options, attempts ...attempt) *failing {
	t.Helper()
	return newFailingWith(t, o, handler.Self(), attempts...)
}

func newFailingWith(t *testing.T, o controller.Options, h handler.Handler[types.NamespacedName], attempts ...attempt) *failing {
	t.Helper()
	return watching(t, o, func(c *controller.Controller[types.NamespacedName], all *cache.Cache) {
		c.Watch(source.Kind(cache.For[*appsv1.Deployment](all), h))
	}, attempts...)
}

func watching(t *testing.T, o controller.Options, watch func(*controller.Controller[types.NamespacedName], *cache.Cache), attempts ...attempt) *failing {
	t.Helper()
	api, all := cluster(t, sim.Deployments)
	f := &failing{t: t, api: api, key: types.NamespacedName{Namespace: "default", Name: "a"}, attempts: attempts}
	var err error
	f.client, err = client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	f.deploys = client.For[*appsv1.Deployment](f.client)
	if o.Logger == nil {
		o.Logger = silent
	}
	o.Hook = hook.Join(o.Hook, f.outcomes.hooks())
	f.Controller = controller.NewWithQueue("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		n := f.calls.note(key.Name)
		return controller.Result{}, f.attempts[min(n, len(f.attempts))-1](f, ctx)
	}), o, backoff)
	watch(f.Controller, all)
	d := workload("a")
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Available", Status: "True", Message: "another client's"}}
	api.Put(sim.Deployments, d)
	return f
}

// start runs the controller until the test ends.
func (f *failing) start() {
	ctx, cancel := context.WithCancel(context.Background())
	synctest.Wait()
	f.api.Lag(lag)
	ended := make(chan error, 1)
	f.calls.began = time.Now()
	go func() { ended <- f.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		ok(f.t, <-ended)
	})
}

// after returns when Reconciles began, within a time.
func (f *failing) after(d time.Duration) []time.Duration {
	time.Sleep(d)
	synctest.Wait()
	f.calls.mu.Lock()
	defer f.calls.mu.Unlock()
	return append([]time.Duration(nil), f.calls.at...)
}

func (f *failing) want(within time.Duration, want ...time.Duration) {
	f.t.Helper()
	testkit.Equal(f.t, fmt.Sprint(f.after(within)), fmt.Sprint(want), "reconciled at")
}

// changed stores the object with a change by another client.
func (f *failing) changed(change func(u *unstructured.Unstructured)) {
	f.t.Helper()
	u := f.api.Object(sim.Deployments, "default", "a").DeepCopy()
	change(u)
	f.api.Put(sim.Deployments, u)
}

// correct is a person's correction of the spec.
func (f *failing) correct(replicas int64) {
	f.changed(func(u *unstructured.Unstructured) {
		ok(f.t, unstructured.SetNestedField(u.Object, replicas, "spec", "replicas"))
	})
}

// others are changes by another client.
var others = map[string]func(f *failing){
	"the spec": func(f *failing) { f.correct(5) },
	"an annotation": func(f *failing) {
		f.changed(func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"value": "1", "by": "other"}) })
	},
	"another condition": func(f *failing) {
		f.changed(func(u *unstructured.Unstructured) {
			list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
			for _, c := range list { // a patch may have put its own first
				if c := c.(map[string]any); c["type"] == "Available" {
					c["message"] = "changed"
				}
			}
			ok(f.t, unstructured.SetNestedSlice(u.Object, list, "status", "conditions"))
		})
	},
	"the same field manager": func(f *failing) {
		_, err := f.deploys.Patch(ledger.Without(context.Background()), f.key, types.MergePatchType, []byte(`{"spec":{"replicas":7}}`))
		ok(f.t, err)
	},
	"a deletion": func(f *failing) {
		ok(f.t, f.deploys.Delete(ledger.Without(context.Background()), f.key))
	},
}

// TestC7_NoOpsHideNothing: the version in the answer of a write that changed nothing is another
// client's, whose event is still to come. This holds for the first failure and for later ones, and
// if the key has given up.
func TestC7_NoOpsHideNothing(t *testing.T) {
	for verb, write := range unlocked {
		for what, other := range others {
			t.Run(verb+", "+what, func(t *testing.T) {
				meanwhile := func(f *failing, ctx context.Context) error {
					other(f)
					ok(t, write(ctx, f.deploys, f.key, 1))
					return errFlaky
				}
				quiet := func(f *failing, ctx context.Context) error {
					ok(t, write(ctx, f.deploys, f.key, 1))
					return errFlaky
				}
				rest := func(*failing, context.Context) error { return nil }
				setUp := func(t *testing.T, o controller.Options, attempts ...attempt) *failing {
					f := newFailing(t, o, attempts...)
					if what == "a deletion" {
						f.changed(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"x/y"}) })
					}
					ok(t, write(context.Background(), f.deploys, f.key, 1))
					f.start()
					return f
				}
				synctest.Test(t, func(t *testing.T) {
					f := setUp(t, controller.Options{}, meanwhile, rest)
					f.want(time.Minute, 0, lag)
				})
				synctest.Test(t, func(t *testing.T) { // after attempts without a change
					f := setUp(t, controller.Options{}, quiet, quiet, meanwhile, rest)
					f.want(time.Minute, 0, 10*time.Second, 20*time.Second, 20*time.Second+lag)
				})
				synctest.Test(t, func(t *testing.T) {
					f := setUp(t, controller.Options{MaxAttempts: 2}, quiet, meanwhile, rest)
					f.want(time.Hour, 0, 10*time.Second, 10*time.Second+lag)
				})
			})
		}
	}
}

// TestC7_WithoutAProof: a Reconcile fails and changes the object each time, without a
// resourceVersion.
func TestC7_WithoutAProof(t *testing.T) {
	for verb, write := range unlocked {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := int32(0)
				f := newFailing(t, controller.Options{}, func(f *failing, ctx context.Context) error {
					n++
					ok(t, write(ctx, f.deploys, f.key, n))
					return errFlaky
				})
				f.start()
				f.want(35*time.Second, unproven...)
			})
		})
	}
}
