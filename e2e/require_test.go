// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
)

// requiring is a replica whose controller of lamps requires its kind.
type requiring struct {
	manager *manager.Manager
	readyz  string
	seen    chan types.NamespacedName
	stop    func()
}

// require starts a replica. One that does not require lamps has a controller of another kind only.
func (w *world) require(name string, lamps bool) *requiring {
	GinkgoHelper()
	l, err := server.Listen("127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	r := &requiring{readyz: "http://" + l.Addr().String() + "/readyz", seen: make(chan types.NamespacedName, 100)}
	r.manager = manager.New(cluster.Config(), manager.Options{
		Name: name, Scheme: newScheme(), Logger: slog.New(slog.DiscardHandler),
		LeaderElection: &leaderelection.Options{Lease: "lamps", Namespace: w.namespace, Identity: name},
	})
	server.AddHealth(r.manager, server.Options{Listener: l})
	if lamps {
		c := controller.New("lamps", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			r.seen <- key
			return controller.Result{}, nil
		}), controller.Options{RequireKinds: true})
		c.Watch(source.Kind(cache.For[*Lamp](r.manager.Cache()), handler.Self()))
		r.manager.Add(c)
	} else {
		r.manager.AddLeaderOnly("leads", func(ctx context.Context) error {
			r.seen <- types.NamespacedName{}
			<-ctx.Done()
			return nil
		})
	}
	run, stop := context.WithCancel(context.WithoutCancel(w.ctx))
	ended := make(chan error, 1)
	go func() { ended <- r.manager.Run(run) }()
	r.stop = func() {
		stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
	}
	return r
}

// probe returns the answer of /readyz.
func (r *requiring) probe(ctx context.Context) (code int, text string) {
	GinkgoHelper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.readyz+"?verbose", nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := (&http.Client{Transport: transport}).Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return resp.StatusCode, string(body)
}

// withoutLamps returns when the API server does not serve lamps any more.
func (w *world) withoutLamps(ctx context.Context) {
	GinkgoHelper()
	w.removeCRD(ctx)
	Eventually(func() bool {
		_, err := w.dynamic.Resource(crds).Get(ctx, lampCRD, metav1.GetOptions{})
		_, served := w.dynamic.Resource(lamps).List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err) && apierrors.IsNotFound(served)
	}).WithTimeout(patience).Should(BeTrue())
}

var _ = Describe("a controller that requires its kinds", func() {
	It("does not campaign until they are served, and another replica leads meanwhile", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		w.withoutLamps(ctx)
		lease := func() error {
			_, err := w.direct.CoordinationV1().Leases(w.namespace).Get(ctx, "lamps", metav1.GetOptions{})
			return err
		}
		r := w.require("first", true)
		defer func() { r.stop() }()
		Eventually(func() string {
			_, text := r.probe(ctx)
			return text
		}).WithTimeout(patience).Should(ContainSubstring("does not serve Lamp of scenario.setpoint.dev/v1; install its CRD"))
		code, text := r.probe(ctx)
		Expect(code).To(Equal(http.StatusInternalServerError))
		Expect(text).To(ContainSubstring("[-]controller-lamps failed: it waits for its sources: Kind(Lamp.v1.scenario.setpoint.dev): waiting for its API"))
		Expect(apierrors.IsNotFound(lease())).To(BeTrue(), "no Lease is written")

		other := w.require("other", false)
		Eventually(other.seen).WithTimeout(patience).Should(Receive())
		Expect(lease()).To(Succeed())
		ended, cancel := context.WithCancel(ctx)
		cancel()
		Expect(r.manager.WaitReady(ended)).To(MatchError(ContainSubstring(`the controller "lamps" waits for its sources: Kind(Lamp.v1.scenario.setpoint.dev): waiting for its API`)))
		other.stop()

		installLamps(ctx)
		began := time.Now()
		w.createLamp(ctx, "a", int64(7))
		Expect(r.manager.WaitReady(ctx)).To(Succeed())
		AddReportEntry("ready after the CRD was served", time.Since(began).String())
		Eventually(r.seen).WithTimeout(patience).Should(Receive(Equal(types.NamespacedName{Namespace: w.namespace, Name: "a"})))
		code, text = r.probe(ctx)
		Expect(code).To(Equal(http.StatusOK), text)
	}, SpecTimeout(patience))

	It("leads with one readable namespace of several, and serves another one when it is granted", func(ctx SpecContext) {
		const user = "tenants-operator"
		cfg, err := cluster.ConfigFor(user)
		Expect(err).NotTo(HaveOccurred())
		o := &confined{world: newWorld(ctx, cfg)}
		var tenants []string
		for range 2 {
			tenant, err := cluster.Namespace(ctx, "tenant-")
			Expect(err).NotTo(HaveOccurred())
			o.make(ctx, tenant, "a")
			tenants = append(tenants, tenant)
		}
		o.grant(ctx, tenants[0], user) // not the other one, and not the missing one
		m := manager.New(cfg, manager.Options{
			Name: "tenants", Logger: slog.New(slog.DiscardHandler),
			Cache:          cache.Options{Namespaces: cache.NewSet(tenants[0], tenants[1], "missing-"+tenants[0])},
			LeaderElection: &leaderelection.Options{Lease: "tenants", Namespace: tenants[0]},
		})
		seen := make(chan types.NamespacedName, 100)
		c := controller.New("tenants", controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
			if key.Name == "a" {
				seen <- key
			}
			return controller.Result{}, nil
		}), controller.Options{RequireKinds: true})
		maps := cache.For[*corev1.ConfigMap](m.Cache())
		c.Watch(source.Kind(maps, handler.Self()))
		m.Add(c)
		run, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan error, 1)
		go func() { ended <- m.Run(run) }()
		defer func() {
			stop()
			Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
		}()
		Expect(m.WaitReady(ctx)).To(Succeed())
		Eventually(seen).WithTimeout(patience).Should(Receive(Equal(types.NamespacedName{Namespace: tenants[0], Name: "a"})))
		Expect(maps.Stale()).To(MatchError(And(ContainSubstring("namespace "+tenants[1]), ContainSubstring("namespace missing-"+tenants[0]))))
		Expect(seen).To(BeEmpty())
		o.grant(ctx, tenants[1], user)
		Eventually(seen).WithTimeout(patience).Should(Receive(Equal(types.NamespacedName{Namespace: tenants[1], Name: "a"})))
	}, SpecTimeout(patience))
})
