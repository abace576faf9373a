// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

var _ = Describe("an object that was just deleted", func() {
	It("makes a write to its status fail, which is no error in the log", func(ctx SpecContext) {
		w := newWriting(ctx)
		services := client.For[*corev1.Service](w.Client)
		must(services.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}))
		var gone atomic.Bool
		var remove sync.Once
		lines := gbytes.NewBuffer()
		mgr := manager.New(cluster.Config(), manager.Options{
			Name: "deleted", Logger: slog.New(slog.NewTextHandler(lines, nil)), Cache: cache.Options{Namespaces: cache.NewSet(w.namespace)},
		})
		cached := cache.For[*corev1.Service](mgr.Cache())
		c := controller.New("services", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := cached.Get(ctx, key)
			if apierrors.IsNotFound(err) {
				gone.Store(true)
				return controller.Result{}, nil
			}
			remove.Do(func() { err = services.Delete(w.ctx, key) }) // another client
			if err == nil {
				_, err = client.For[*corev1.Service](mgr.Client()).PatchStatus(ctx, key, types.MergePatchType, []byte(`{"status":{"conditions":[]}}`))
			}
			return controller.Result{}, err
		}), controller.Options{})
		c.Watch(source.Kind(cached, handler.Self()))
		mgr.Add(c)
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- mgr.Run(running) }()
		Eventually(ctx, gone.Load, patience).Should(BeTrue())
		stop()
		Expect(<-done).To(Succeed())
		Expect(string(lines.Contents())).To(And(
			ContainSubstring(`level=INFO msg="reconcile will be retried"`), ContainSubstring("not found"), Not(ContainSubstring("level=ERROR")),
		))
	})
})
