// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// clusterKey is a key with a tenant of its own.
type clusterKey struct{ cluster, name string }

func (k clusterKey) Tenant() string { return k.cluster }

const (
	tenantKeys = 50_000
	newKeys    = 5
	mostOthers = 12 // Reconciles of other tenants before the last of newKeys
)

// TestW6_NamespaceTenants_ACrowdDoesNotDelayAnotherNamespace: a namespace has 50,000 ready keys,
// and another one gets 5. With tenants, few others are reconciled before the last of the 5. Without
// them, all are.
func TestW6_NamespaceTenants_ACrowdDoesNotDelayAnotherNamespace(t *testing.T) {
	for _, tenants := range []bool{true, false} {
		t.Run(fmt.Sprint(tenants), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				others, last := 0, make(chan int, 1)
				left := newKeys
				ctx, cancel := context.WithCancel(t.Context())
				c := controller.New("tenants", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
					if key.Namespace == "crowd" {
						others++
						return controller.Result{}, nil
					}
					if left--; left == 0 {
						last <- others
						cancel()
					}
					return controller.Result{}, nil
				}), controller.Options{NamespaceTenants: tenants, Logger: silent})
				var keys []types.NamespacedName
				for i := range tenantKeys {
					keys = append(keys, types.NamespacedName{Namespace: "crowd", Name: fmt.Sprint(i)})
				}
				c.Queue().AddAll(keys, workqueue.AddOptions{})
				for i := range newKeys {
					c.Queue().Add(types.NamespacedName{Namespace: "new", Name: fmt.Sprint(i)})
				}
				ok(t, c.Run(ctx))
				if n := <-last; tenants && n > mostOthers || !tenants && n != tenantKeys {
					t.Errorf("%d others were reconciled before the last of %d", n, newKeys)
				}
			})
		})
	}
}

// TestNamespaceTenants_Keys: namespaced names and keys with a method have tenants. Other keys are
// an error that names the remedy. workqueue.Options.Tenant wins.
func TestNamespaceTenants_Keys(t *testing.T) {
	o := controller.Options{NamespaceTenants: true}
	tenant := func(q workqueue.Snapshot[clusterKey]) string { return q.Keys[0].Tenant }

	own := controller.New("own", controller.Func[clusterKey](nil), o)
	own.Queue().Add(clusterKey{"east", "a"})
	testkit.Equal(t, tenant(own.Snapshot().Queue), "east", "the tenant of a key with a method")
	ours := controller.NewWithQueue("ours", controller.Func[clusterKey](nil), o, workqueue.Options[clusterKey]{
		Tenant: func(k clusterKey) string { return k.name },
	})
	ours.Queue().Add(clusterKey{"east", "a"})
	testkit.Equal(t, tenant(ours.Snapshot().Queue), "a", "with workqueue.Options.Tenant, the tenant")
	clusters := controller.New("clusters", controller.Func[handler.ClusterKey](nil), o)
	clusters.Queue().Add(handler.ClusterKey{Cluster: "east", NamespacedName: types.NamespacedName{Namespace: "shop", Name: "a"}})
	testkit.Equal(t, clusters.Snapshot().Queue.Keys[0].Tenant, "east:shop", "the tenant of a handler.ClusterKey")
	wrong := controller.New("wrong", controller.Func[string](nil), o)
	err := wrong.Validate()
	for _, want := range []string{"controller.Options.NamespaceTenants", "string", "Tenant() string", "workqueue.Options.Tenant"} {
		testkit.ErrorContains(t, err, want, "keys without a namespace")
	}
}

// TestOptions_QueueFields: the fields of Options reach the queue, and fields of
// workqueue.Options win.
func TestOptions_QueueFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := controller.Options{
			Classes: []workqueue.ClassWeight{{Class: 5, Weight: 1}}, Backoff: workqueue.Exponential{Base: time.Minute, Max: time.Minute},
			Limiter: rate.NewLimiter(rate.Every(time.Hour), 1), MinInterval: time.Second, MaxWait: 10 * time.Second, Logger: silent,
		}
		for _, test := range []struct {
			name    string
			q       workqueue.Options[string]
			retries []string // waits before the attempts
		}{
			{"of Options", workqueue.Options[string]{}, []string{"1s", "1m1s", "1h0m1s"}},
			{"of workqueue.Options", workqueue.Options[string]{
				Backoff: workqueue.Exponential{Base: time.Millisecond}, Limiter: rate.NewLimiter(rate.Inf, 1), MinInterval: 2 * time.Second,
			}, []string{"2s", "2.001s", "2.003s"}},
		} {
			began := time.Now()
			var at []string
			ctx, cancel := context.WithCancel(t.Context())
			c := controller.NewWithQueue("fields", controller.Func[string](func(ctx context.Context, _ string) (controller.Result, error) {
				at = append(at, time.Since(began).String())
				info, _ := controller.InfoFromContext(ctx)
				testkit.Equal(t, info.Class, 5)
				if len(at) == 3 {
					cancel()
				}
				return controller.Result{}, errFlaky
			}), o, test.q)
			c.Queue().Add("a")
			ok(t, c.Run(ctx))
			testkit.Equal(t, fmt.Sprint(at), fmt.Sprint(test.retries), test.name, "reconciled after")
		}
	})
}

// TestResult_ClassOfTheNextReconcile: a Result chooses the class of its retry and of RequeueAfter.
func TestResult_ClassOfTheNextReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var classes []workqueue.Class
		ctx, cancel := context.WithCancel(t.Context())
		c := newController(func(ctx context.Context, _ string) (controller.Result, error) {
			info, _ := controller.InfoFromContext(ctx)
			classes = append(classes, info.Class)
			switch len(classes) {
			case 1:
				return controller.Result{RequeueAfter: time.Second, Class: new(workqueue.Background)}, nil
			case 2:
				return controller.Result{Class: new(workqueue.Interactive)}, errFlaky
			case 3:
				return controller.Result{}, errFlaky
			}
			cancel()
			return controller.Result{Class: new(workqueue.Interactive)}, nil
		}, controller.Options{})
		c.Queue().Add("a")
		ok(t, c.Run(ctx))
		testkit.Equal(t, fmt.Sprint(classes), "[normal background interactive interactive]")
	})
}
