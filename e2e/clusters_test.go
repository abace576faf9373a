// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"log/slog"
	"net/http"

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
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
)

// pairs is a strict operator for two clusters. It makes a Secret beside each ConfigMap, in the
// cluster of the ConfigMap.
type pairs struct {
	manager *manager.Manager
	west    *manager.Cluster
	sources map[string]source.Source[handler.ClusterKey]
	control *controller.Controller[handler.ClusterKey]
	maps    map[string]*cache.Handle[*corev1.ConfigMap]
	secrets map[string]*cache.Handle[*corev1.Secret]
	writes  map[string]*client.Handle[*corev1.Secret]
	*requiring
}

// Reconcile implements controller.Reconciler.
func (p *pairs) Reconcile(ctx context.Context, key handler.ClusterKey) (controller.Result, error) {
	m, err := p.maps[key.Cluster].Get(ctx, key.NamespacedName)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	_, err = p.secrets[key.Cluster].Get(ctx, key.NamespacedName)
	if apierrors.IsNotFound(err) {
		_, err = p.writes[key.Cluster].Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, Labels: map[string]string{"cluster": key.Cluster},
		}})
	}
	return controller.Result{}, err
}

// pairs starts the operator. The cluster west is the proxy's, and its objects are in a namespace of
// their own.
func (w *world) pairs(ctx context.Context, west string) *pairs {
	GinkgoHelper()
	l, err := server.Listen("127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	p := &pairs{
		sources: map[string]source.Source[handler.ClusterKey]{}, maps: map[string]*cache.Handle[*corev1.ConfigMap]{},
		secrets: map[string]*cache.Handle[*corev1.Secret]{}, writes: map[string]*client.Handle[*corev1.Secret]{},
		requiring: &requiring{readyz: "http://" + l.Addr().String() + "/readyz"},
	}
	p.manager = manager.New(cluster.Config(), manager.Options{
		Name: "pairs", Logger: slog.New(slog.DiscardHandler), RequireTerm: true,
		LeaderElection: &leaderelection.Options{Lease: "pairs", Namespace: w.namespace},
	})
	server.AddHealth(p.manager, server.Options{Listener: l})
	through, err := w.proxy.Config()
	Expect(err).NotTo(HaveOccurred())
	p.west = p.manager.AddCluster("west", through)
	p.control = controller.New("pairs", p, controller.Options{})
	add := func(name, namespace string, c *cache.Cache, writes *client.Client) {
		scope := cache.Scope{Namespaces: cache.NewSet(namespace)}
		p.maps[name], p.secrets[name] = cache.ForScope[*corev1.ConfigMap](c, scope), cache.ForScope[*corev1.Secret](c, scope)
		p.writes[name] = client.For[*corev1.Secret](writes)
		p.sources[name] = source.Kind(p.maps[name], handler.InCluster(name, handler.Self()))
		p.sources[name+" secrets"] = source.Kind(p.secrets[name], handler.InCluster(name, handler.Self()))
		p.control.Watch(p.sources[name])
		p.control.Watch(p.sources[name+" secrets"])
	}
	add("east", w.namespace, p.manager.Cache(), p.manager.Client())
	add("west", west, p.west.Cache(), p.west.Client())
	p.manager.Add(p.control)
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.manager.Run(run) }()
	p.stop = func() {
		stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
	}
	return p
}

var _ = Describe("several clusters in one process", func() {
	It("go on while one of them cannot be reached, which may be removed", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		west, err := cluster.Namespace(ctx, "west")
		Expect(err).NotTo(HaveOccurred())
		w.proxy.Down()
		p := w.pairs(ctx, west)
		defer func() { p.stop() }()
		for _, namespace := range []string{w.namespace, west} {
			_, err := w.direct.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		madeBy := func(namespace string) func() string {
			return func() string {
				s, err := w.direct.CoreV1().Secrets(namespace).Get(ctx, "a", metav1.GetOptions{})
				if err != nil {
					return string(apierrors.ReasonForError(err))
				}
				return s.Labels["cluster"]
			}
		}
		Eventually(madeBy(w.namespace)).WithTimeout(patience).Should(Equal("east"))
		Expect(madeBy(west)()).To(Equal("NotFound"))
		code, text := p.probe(ctx)
		Expect(code).To(Equal(http.StatusOK), text)
		Expect(text).To(MatchRegexp(`informers ok: .*\(cluster west, namespace west-[-\w]+\): failing`))

		Expect(w.proxy.Up()).To(Succeed())
		Eventually(madeBy(west)).WithTimeout(patience).Should(Equal("west"))
		Expect(p.manager.Idle(ctx)).To(Succeed())
		_, text = p.probe(ctx)
		Expect(text).To(ContainSubstring("[+]informers ok\n"))

		w.proxy.Down()
		Expect(p.manager.RemoveCluster(ctx, p.west)).To(MatchError(ContainSubstring(`the cluster "west" is in use by the controller "pairs"`)))
		Expect(p.control.Unwatch(ctx, p.sources["west"])).To(Succeed())
		Expect(p.control.Unwatch(ctx, p.sources["west secrets"])).To(Succeed())
		Expect(p.manager.RemoveCluster(ctx, p.west)).To(Succeed())
		_, err = p.maps["west"].Get(ctx, types.NamespacedName{Namespace: west, Name: "a"})
		Expect(err).To(MatchError(ContainSubstring(`the cluster "west" was removed`)))
		Expect(p.manager.Idle(ctx)).To(Succeed())
		_, text = p.probe(ctx)
		Expect(text).To(ContainSubstring("[+]informers ok\n"))
	}, SpecTimeout(patience))
})
