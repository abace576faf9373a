// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
)

var _ = Describe("The operator", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		var err error
		namespace, err = cluster.Namespace(ctx, "restart")
		Expect(err).NotTo(HaveOccurred())
	})

	It("catches up after a restart with objects that were created, changed and damaged meanwhile", func(ctx SpecContext) {
		stop := startOperator()
		site := create(ctx, siteIn(namespace, 1, "one"))
		expectWorld(ctx, site, 1, "one")
		stop()

		change(ctx, site, 2, "two")
		remove[*corev1.Service](ctx, key(site))
		another := siteIn(namespace, 1, "new")
		another.Name = "another"
		another = create(ctx, another)
		Consistently(ctx, func(g Gomega) { // no operator runs
			g.Expect(*get[*appsv1.Deployment](g, ctx, key(site)).Spec.Replicas).To(BeEquivalentTo(1))
		}).Should(Succeed())

		startOperator()
		expectWorld(ctx, site, 2, "two")
		expectWorld(ctx, another, 1, "new")
	})

	It("may be stopped in the middle of its work", func(ctx SpecContext) {
		stop := startOperator()
		site := create(ctx, siteIn(namespace, 1, "one"))
		Eventually(ctx, gone[*corev1.ConfigMap](ctx, content(site))).Should(BeFalse())
		stop() // the ConfigMap is there; who knows what else
		startOperator()
		expectWorld(ctx, site, 1, "one")
	})

	It("finalizes a site that was deleted while it did not run", func(ctx SpecContext) {
		stop := startOperator()
		site := create(ctx, siteIn(namespace, 1, "one"))
		expectWorld(ctx, site, 1, "one")
		stop()

		remove[*v1.Website](ctx, key(site))
		Consistently(ctx, func(g Gomega) {
			held := get[*v1.Website](g, ctx, key(site))
			g.Expect(held.DeletionTimestamp).NotTo(BeNil())
			g.Expect(get[*corev1.ConfigMap](g, ctx, index(site)).Data).To(HaveKey(site.Name))
		}).Should(Succeed())

		startOperator()
		expectNothing(ctx, site)
	})

	It("has a second replica that takes over when the first stops", func(ctx SpecContext) {
		stopFirst := startOperator()
		site := create(ctx, siteIn(namespace, 1, "one"))
		expectWorld(ctx, site, 1, "one")
		startOperator() // ready, but not leading
		stopFirst()
		change(ctx, site, 2, "two")
		expectWorld(ctx, site, 2, "two")
	})
})
