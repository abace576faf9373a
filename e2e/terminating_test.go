// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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

var _ = Describe("a namespace that is being deleted", func() {
	It("lets keys wait for the deletion of their objects", func(ctx SpecContext) {
		namespace, err := cluster.Namespace(ctx, "terminating-")
		Expect(err).NotTo(HaveOccurred())
		admin := newWriting(ctx)
		for _, name := range []string{"a", "b", "c"} {
			_, err := client.For[*corev1.ConfigMap](admin.Client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
			Expect(err).NotTo(HaveOccurred())
		}
		// This control plane has no controller that empties the namespace.
		Expect(client.For[*corev1.Namespace](admin.Client).Delete(ctx, types.NamespacedName{Name: namespace})).To(Succeed())
		Eventually(ctx, func() bool { // its admission reads a cache
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "probe-"}}
			_, err := client.For[*corev1.Secret](admin.Client).Create(ctx, s)
			return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		}, patience).Should(BeTrue())

		var refused, gone atomic.Int64
		mgr := manager.New(cluster.Config(), manager.Options{
			Name: "terminating", Logger: slog.New(slog.DiscardHandler), Cache: cache.Options{Namespaces: cache.NewSet(namespace)},
		})
		maps := cache.For[*corev1.ConfigMap](mgr.Cache())
		c := controller.New("secrets", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if _, err := maps.Get(ctx, key); apierrors.IsNotFound(err) {
				gone.Add(1)
				return controller.Result{}, nil
			}
			_, err := client.For[*corev1.Secret](mgr.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
			refused.Add(1)
			return controller.Result{}, err
		}), controller.Options{})
		c.Watch(source.Kind(maps, handler.Self()))
		mgr.Add(c)
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- mgr.Run(running) }()
		defer func() {
			stop()
			Expect(<-done).To(Succeed())
		}()

		Eventually(ctx, func() (failed int) {
			for _, k := range c.Snapshot().Keys {
				if k.LastError != nil {
					failed++
				}
			}
			return failed
		}, patience).Should(Equal(3))
		// A backoff would make about nine attempts for each.
		Consistently(ctx, refused.Load, 2*time.Second).Should(BeEquivalentTo(3))
		for _, name := range []string{"a", "b", "c"} {
			Expect(client.For[*corev1.ConfigMap](admin.Client).Delete(ctx, types.NamespacedName{Namespace: namespace, Name: name})).To(Succeed())
		}
		Eventually(ctx, gone.Load, patience).Should(BeEquivalentTo(3))
		Expect(mgr.Idle(ctx)).To(Succeed())
	})
})
