// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
)

var _ = Describe("children with fields that are not stored", func() {
	var owner *corev1.ConfigMap
	var set *children.Set[*corev1.ConfigMap]

	BeforeEach(func(ctx SpecContext) {
		installLamps(ctx)
		namespace, err := cluster.Namespace(ctx, "children-")
		Expect(err).NotTo(HaveOccurred())
		c, err := client.New(cluster.Config(), client.Options{Scheme: newScheme(), FieldOwner: "children"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(c.Close)
		view := cache.New(c, cache.Options{})
		set, err = children.New(cache.For[*corev1.ConfigMap](view), c,
			children.Of(cache.For[*corev1.Service](view)), children.Of(cache.ForScope[*unstructured.Unstructured](view, cache.Scope{Kind: lampKind})))
		Expect(err).NotTo(HaveOccurred())
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan error, 1)
		go func() { done <- view.Run(running) }()
		DeferCleanup(func() {
			stop()
			Expect(<-done).To(Succeed())
		})
		owner, err = client.For[*corev1.ConfigMap](c).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}})
		Expect(err).NotTo(HaveOccurred())
	})

	It("name the field that the schema does not have", func(ctx SpecContext) {
		lamp := &unstructured.Unstructured{Object: map[string]any{"watts": int64(40), "color": "red"}}
		lamp.SetGroupVersionKind(lampKind)
		lamp.SetName("lamp")
		_, err := set.Reconcile(ctx, owner, client.UnstructuredConfiguration(lamp))
		Expect(err).To(MatchError(And(HavePrefix("Lamp "+owner.Namespace+"/lamp: "), HaveSuffix(".color: field not declared in schema"))))
	})

	It("name the field that the API server does not store", func(ctx SpecContext) {
		status := coreac.ServiceStatus().WithLoadBalancer(coreac.LoadBalancerStatus().WithIngress(coreac.LoadBalancerIngress().WithIP("192.0.2.1")))
		service := coreac.Service("web", "").WithSpec(coreac.ServiceSpec().WithPorts(coreac.ServicePort().WithPort(80))).WithStatus(status)
		for range 2 {
			_, err := set.Reconcile(ctx, owner, service)
			Expect(err).To(MatchError(HavePrefix("Service " + owner.Namespace + "/web: the API server does not store .status.loadBalancer.ingress; leave the field out")))
		}
	})
})
