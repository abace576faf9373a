// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// unlockedWrites have no resourceVersion. Each sets a field that depends on a number.
var unlockedWrites = map[string]func(ctx context.Context, w *client.Handle[*appsv1.Deployment], key types.NamespacedName, n int32) (*appsv1.Deployment, error){
	"PatchStatus": func(ctx context.Context, w *client.Handle[*appsv1.Deployment], key types.NamespacedName, n int32) (*appsv1.Deployment, error) {
		return w.PatchStatus(ctx, key, types.MergePatchType, fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, n))
	},
	"ApplyStatus": func(ctx context.Context, w *client.Handle[*appsv1.Deployment], key types.NamespacedName, n int32) (*appsv1.Deployment, error) {
		return w.ApplyStatus(ctx, appsac.Deployment(key.Name, key.Namespace).WithStatus(appsac.DeploymentStatus().WithConditions(
			appsac.DeploymentCondition().WithType("Progressing").WithStatus("False").WithMessage(fmt.Sprint(n)))))
	},
	"Patch": func(ctx context.Context, w *client.Handle[*appsv1.Deployment], key types.NamespacedName, n int32) (*appsv1.Deployment, error) {
		return w.Patch(ctx, key, types.StrategicMergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n))
	},
	"Apply": func(ctx context.Context, w *client.Handle[*appsv1.Deployment], key types.NamespacedName, n int32) (*appsv1.Deployment, error) {
		return w.Apply(ctx, appsac.Deployment(key.Name, key.Namespace).WithSpec(appsac.DeploymentSpec().WithMinReadySeconds(n)))
	},
}

// C7: the backoff is longer than the suite. An attempt that should not wait for it comes, and one
// that should does not.
var _ = Describe("a Reconcile that fails and writes without a resourceVersion", func() {
	for verb, write := range unlockedWrites {
		It("waits for nothing but its own changes: "+verb, func(ctx SpecContext) {
			w := newWorld(ctx, cluster.Config())
			deployments := client.For[*appsv1.Deployment](w.client)
			key := types.NamespacedName{Namespace: w.namespace, Name: "web"}
			create := func(name string) {
				GinkgoHelper()
				web := (&writing{namespace: w.namespace}).web("a")
				web.Name = &name
				must(deployments.Apply(ctx, web, client.FieldOwner("person")))
			}
			correct := func(replicas int32) error {
				_, err := w.direct.AppsV1().Deployments(w.namespace).Patch(ctx, key.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
				return err
			}
			create(key.Name)
			must(write(ctx, deployments, key, 1))

			attempts, fence := make(chan int32, 100), make(chan struct{}, 100)
			began := int32(0)
			c := controller.NewWithQueue("own", controller.Func[types.NamespacedName](func(ctx context.Context, of types.NamespacedName) (controller.Result, error) {
				if of != key {
					fence <- struct{}{}
					return controller.Result{}, nil
				}
				began++
				n, value := began, int32(1)
				if n <= 2 { // a correction, and a no-op
					if err := correct(n + 1); err != nil {
						return controller.Result{}, err
					}
				} else {
					value = n
				}
				_, err := write(ctx, deployments, key, value)
				attempts <- n
				return controller.Result{}, errors.Join(err, errors.New("it always fails"))
			}), controller.Options{Logger: slog.New(slog.DiscardHandler)}, workqueue.Options[types.NamespacedName]{
				Backoff: workqueue.Exponential{Base: time.Hour, Max: time.Hour},
			})
			scope := cache.Scope{Namespaces: cache.NewSet(w.namespace)}
			c.Watch(source.Kind(cache.ForScope[*appsv1.Deployment](w.cache, scope), handler.Self()))
			w.start(c)

			By("another client's change during the first attempt and the second")
			for n := int32(1); n <= 3; n++ {
				Eventually(attempts).WithTimeout(patience).Should(Receive(Equal(n)), "attempt %d", n)
			}
			By("its own change in the third")
			create("fence")
			Eventually(fence).WithTimeout(patience).Should(Receive())
			Eventually(func() workqueue.State {
				look, _ := c.Queue().Lookup(key)
				return look.State
			}).WithTimeout(patience).Should(Equal(workqueue.Waiting))
			Expect(attempts).To(BeEmpty())
		}, SpecTimeout(3*patience))
	}
})
