// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// stopsWithin bounds stops that should be immediate. It is far less than the grace time.
const stopsWithin = 10 * time.Second

// stoppable is a manager with a controller that writes, in its own namespace.
func stoppable(cfg *rest.Config, namespace string, elected bool) *manager.Manager {
	o := manager.Options{Name: "stoppable", Grace: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	if elected {
		o.LeaderElection = &leaderelection.Options{Lease: "stoppable", Namespace: namespace}
	}
	m := manager.New(cfg, o)
	maps := cache.ForScope[*corev1.ConfigMap](m.Cache(), cache.Scope{Namespaces: cache.NewSet(namespace)})
	c := controller.New("stoppable", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		// once: then it changes nothing.
		_, err := client.For[*corev1.ConfigMap](m.Client()).Patch(ctx, key, types.MergePatchType, []byte(`{"data":{"seen":"true"}}`))
		return controller.Result{}, ignoreNotFound(err)
	}), controller.Options{Workers: 4})
	c.Watch(source.Kind(maps, handler.Self()))
	c.Reads(cache.ForScope[*corev1.Secret](m.Cache(), cache.Scope{Namespaces: cache.NewSet(namespace)}))
	m.Add(c)
	return m
}

// stopped runs a manager for a while, and expects it to stop immediately and without an error.
func stopped(ctx context.Context, m *manager.Manager, after time.Duration, late func()) {
	GinkgoHelper()
	run, stop := context.WithCancel(ctx)
	defer stop()
	result := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { result <- m.Run(run) })
	defer running.Wait()
	lapse(ctx, after)
	late()
	began := time.Now()
	stop()
	Eventually(result).WithTimeout(stopsWithin).Should(Receive(BeNil()))
	AddReportEntry(fmt.Sprintf("stopped after %s", time.Since(began).Round(time.Millisecond)))
}

// processor returns the processor time of this process.
func processor() time.Duration {
	var u syscall.Rusage
	Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &u)).To(Succeed())
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// silent is an address that accepts connections and sends nothing.
func silent(ctx context.Context) string {
	GinkgoHelper()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	var all sync.WaitGroup
	var mu sync.Mutex // guards lines
	var lines []net.Conn
	all.Go(func() {
		for {
			line, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			lines = append(lines, line)
			mu.Unlock()
		}
	})
	DeferCleanup(func() {
		Expect(l.Close()).To(Succeed())
		all.Wait()
		for _, line := range lines {
			_ = line.Close()
		}
	})
	return l.Addr().String()
}

var _ = Describe("M3: a manager stops at once", func() {
	any := fault.Match{}
	for _, elected := range []bool{false, true} {
		words := map[bool]string{false: "", true: ", elected"}[elected]
		DescribeTable("where nothing runs"+words, func(ctx SpecContext, before, late func(p *fault.Proxy)) {
			w := newWorld(ctx, cluster.Config())
			each(20, func(name string) error {
				_, err := w.direct.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				return err
			})
			cfg, err := w.proxy.Config()
			Expect(err).NotTo(HaveOccurred())
			if before != nil {
				before(w.proxy)
			}
			m := stoppable(cfg, w.namespace, elected)
			stopped(ctx, m, 700*time.Millisecond, func() {
				if before == nil { // a Reconcile that runs would have the grace period
					Expect(m.Idle(ctx)).To(Succeed())
				}
				if late != nil {
					late(w.proxy)
					lapse(ctx, 200*time.Millisecond)
				}
			})
		},
			Entry("and all is well", SpecTimeout(patience), nil, nil),
			Entry("while the API server hangs", SpecTimeout(patience), func(p *fault.Proxy) { p.Add(fault.Rule{Match: any, Hang: true}) }, nil),
			Entry("while it refuses connections", SpecTimeout(patience), func(p *fault.Proxy) { p.Down() }, nil),
			Entry("while it errs", SpecTimeout(patience), func(p *fault.Proxy) {
				p.Add(fault.Rule{Match: any, Refuse: apierrors.NewInternalError(errors.New("boom"))})
			}, nil),
			Entry("while it is overloaded", SpecTimeout(patience), func(p *fault.Proxy) { p.Add(fault.Rule{Match: any, Refuse: apierrors.NewTooManyRequests("later", 30)}) }, nil),
			Entry("while it breaks connections", SpecTimeout(patience), func(p *fault.Proxy) { p.Add(fault.Rule{Match: any, Cut: true}) }, nil),
			Entry("while lists do not end", SpecTimeout(patience), func(p *fault.Proxy) {
				p.Add(fault.Rule{Match: fault.Match{Verbs: []string{"list", "watch"}, Resources: []string{"secrets"}}, Freeze: true})
			}, nil),
			Entry("and it hangs from then on", SpecTimeout(patience), nil, func(p *fault.Proxy) { p.Add(fault.Rule{Match: any, Hang: true}) }),
			Entry("and connections freeze", SpecTimeout(patience), nil, func(p *fault.Proxy) { p.Add(fault.Rule{Match: any, Hold: true, Freeze: true}) }),
			Entry("and it is gone", SpecTimeout(patience), nil, func(p *fault.Proxy) { p.Down() }),
		)

		It("while nothing answers a connection, without using the processor"+words, SpecTimeout(patience), func(ctx SpecContext) {
			cfg := rest.CopyConfig(cluster.Config())
			cfg.Host = "https://" + silent(ctx)
			m := stoppable(cfg, "default", elected)
			began, used := time.Now(), processor()
			stopped(ctx, m, 2*time.Second, func() {
				share := float64(processor()-used) / float64(time.Since(began))
				AddReportEntry(fmt.Sprintf("%.0f %% of a processor", 100*share))
				Expect(share).To(BeNumerically("<", 0.5), "something spins")
			})
		})

		It("at any moment"+words, SpecTimeout(patience), func(ctx SpecContext) {
			w := newWorld(ctx, cluster.Config())
			each(20, func(name string) error {
				_, err := w.direct.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				return err
			})
			r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
			cfg, err := w.proxy.Config()
			Expect(err).NotTo(HaveOccurred())
			for range 20 {
				stopped(ctx, stoppable(cfg, w.namespace, elected), time.Duration(r.Int64N(int64(300*time.Millisecond))), func() {})
				if elected { // what it held is free
					l, err := w.direct.CoordinationV1().Leases(w.namespace).Get(ctx, "stoppable", metav1.GetOptions{})
					Expect(ignoreNotFound(err)).To(Succeed())
					if err == nil && l.Spec.HolderIdentity != nil {
						Expect(*l.Spec.HolderIdentity).To(BeEmpty())
					}
				}
			}
		})
	}
})
