// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

var _ = Describe("Half-open connections", func() {
	// A single replica: without its Lease, nothing is reconciled.
	It("cost neither the term nor the informers (L3)", func(ctx SpecContext) {
		w, cfg := newWire()
		r := newRace(ctx)
		var lost atomic.Int64
		renewed, failed := make(chan struct{}, 1), make(chan struct{}, 1)
		note := func(c chan<- struct{}) {
			select {
			case c <- struct{}{}:
			default:
			}
		}
		mgr := manager.New(cfg, manager.Options{
			Name: "operator", Logger: slog.New(slog.DiscardHandler),
			LeaderElection: &leaderelection.Options{
				Lease: "operator", Namespace: r.namespace, LeaseDuration: 8 * time.Second, RenewDeadline: 5 * time.Second, RetryPeriod: time.Second,
				Hook: hook.Join(
					hook.On(func(*hook.LeaseLost) { lost.Add(1) }),
					hook.On(func(of *hook.LeaseRenewal) {
						if of.Err != nil {
							note(failed)
						} else {
							note(renewed)
						}
					}),
				),
			},
		})
		maps := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Namespaces: cache.NewSet(r.namespace)})
		reconciled := make(chan string, 100)
		c := controller.New("maps", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			// A request of the Reconcile may be the first one to meet the frozen connection.
			m, err := client.For[*corev1.ConfigMap](mgr.Client()).GetLive(ctx, key)
			if err == nil {
				reconciled <- m.Name
			}
			return controller.Result{}, err
		}), controller.Options{})
		c.Watch(source.Kind(maps, handler.Self()))
		mgr.Add(c)
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- mgr.Run(running) }()
		create := func(name string) {
			GinkgoHelper()
			_, err := r.direct.CoreV1().ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		create("before")
		Eventually(ctx, reconciled).Should(Receive(Equal("before")))
		Eventually(ctx, renewed).Should(Receive())
		w.Freeze()
		create("after")
		Eventually(ctx, failed).Should(Receive(), "the elector noticed nothing")
		Eventually(ctx, renewed).Should(Receive())
		Eventually(ctx, renewed).Should(Receive(), "it renews again")
		Eventually(ctx, reconciled).Should(Receive(Equal("after")))
		Expect(lost.Load()).To(BeZero(), "the term was lost")
		stop()
		Eventually(ctx, ended).Should(Receive(BeNil()))
	}, SpecTimeout(patience))

	It("do not cost the term of client-go's elector, over the connections of a client", func(ctx SpecContext) {
		w, cfg := newWire()
		r := newRace(ctx)
		c, err := client.New(cfg, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { c.Disconnect(ctx) })
		clients, err := kubernetes.NewForConfigAndClient(c.Config(), c.HTTPClient())
		Expect(err).NotTo(HaveOccurred())
		leads, stopped := make(chan struct{}), make(chan struct{})
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "operator"}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "host"},
		}
		running, stop := context.WithCancel(logr.NewContext(ctx, logr.Discard()))
		defer stop()
		go clientgo.RunOrDie(running, clientgo.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
			Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() { close(stopped) }},
		})
		Eventually(ctx, leads).Should(BeClosed())
		w.Freeze()
		before, err := r.direct.CoordinationV1().Leases(r.namespace).Get(ctx, "operator", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega, ctx context.Context) {
			g.Expect(stopped).NotTo(BeClosed(), "the term was lost")
			now, err := r.direct.CoordinationV1().Leases(r.namespace).Get(ctx, "operator", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(now.Spec.RenewTime.Time).To(BeTemporally(">", before.Spec.RenewTime.Time))
		}).WithPolling(time.Second).Should(Succeed())
		Expect(stopped).NotTo(BeClosed(), "the term was lost")
		stop()
		Eventually(ctx, stopped).Should(BeClosed())
	}, SpecTimeout(patience))
})
