// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/manager"
)

var _ = Describe("A Website", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) {
		var err error
		namespace, err = cluster.Namespace(ctx, "website")
		Expect(err).NotTo(HaveOccurred())
	})

	It("becomes a ConfigMap, a Service and a Deployment, is listed, and reports when it is ready", func(ctx SpecContext) {
		stop := startOperator()
		site := create(ctx, siteIn(namespace, 2, "<h1>one</h1>"))
		expectWorld(ctx, site, 2, "<h1>one</h1>")
		// What kubectl counts as ready, it counts by container.
		pods, err := clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Items).To(HaveLen(2))
		for _, pod := range pods.Items {
			Expect(pod.Status.ContainerStatuses).To(HaveLen(len(pod.Spec.Containers)))
			for i, c := range pod.Status.ContainerStatuses {
				Expect(c.Name).To(Equal(pod.Spec.Containers[i].Name))
				Expect(c.Ready && c.State.Running != nil).To(BeTrue(), "%s is not ready", c.Name)
			}
		}
		stop() // sends all events
		described, err := clientset.CoreV1().Events(namespace).SearchWithContext(ctx, admin.Scheme(), site)
		Expect(err).NotTo(HaveOccurred())
		for _, kind := range []string{"ConfigMap", "Service", "Deployment"} {
			Expect(described.Items).To(ContainElement(HaveField("Message", ContainSubstring("created "+kind+" hello"))))
		}
	})

	It("is followed when it changes, down to no server and up again", func(ctx SpecContext) {
		startOperator()
		site := create(ctx, siteIn(namespace, 1, "one"))
		expectWorld(ctx, site, 1, "one")
		change(ctx, site, 3, "two")
		expectWorld(ctx, site, 3, "two")
		change(ctx, site, 0, "two")
		expectWorld(ctx, site, 0, "two")
		change(ctx, site, 2, "three")
		expectWorld(ctx, site, 2, "three")
	})

	It("leaves nothing behind when it is deleted, without affecting its neighbour", func(ctx SpecContext) {
		startOperator()
		site, neighbour := create(ctx, siteIn(namespace, 1, "one")), siteIn(namespace, 1, "two")
		neighbour.Name = "neighbour"
		neighbour = create(ctx, neighbour)
		expectWorld(ctx, site, 1, "one")
		expectWorld(ctx, neighbour, 1, "two")
		remove[*v1.Website](ctx, key(site))
		expectNothing(ctx, site)
		expectWorld(ctx, neighbour, 1, "two")
	})

	It("may return under the same name", func(ctx SpecContext) {
		mgr, _ := runOperator()
		first := create(ctx, siteIn(namespace, 1, "one"))
		expectWorld(ctx, first, 1, "one")
		remove[*v1.Website](ctx, key(first))
		Expect(mgr.Idle(ctx)).To(Succeed())
		Expect(gone[*v1.Website](ctx, key(first))()).To(BeTrue())
		// The first one's objects may still exist.
		second := create(ctx, siteIn(namespace, 1, "two"))
		expectWorld(ctx, second, 1, "two")
	})

	It("has one server by default", func(ctx SpecContext) {
		site := siteIn(namespace, 0, "one")
		site.Spec.Replicas = nil
		Expect(create(ctx, site).Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
	})

	DescribeTable("is refused if it is invalid, with an error that names the problem",
		func(ctx SpecContext, spoil func(*v1.Website), words ...string) {
			site := siteIn(namespace, 1, "one")
			spoil(site)
			_, err := client.For[*v1.Website](admin).Create(ctx, site)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "got %v", err)
			for _, w := range words {
				Expect(err).To(MatchError(ContainSubstring(w)))
			}
		},
		Entry("too many servers", func(s *v1.Website) { s.Spec.Replicas = new(int32(11)) }, "spec.replicas", "less than or equal to 10"),
		Entry("a negative number of servers", func(s *v1.Website) { s.Spec.Replicas = new(int32(-1)) }, "spec.replicas", "greater than or equal to 0"),
		Entry("an empty page", func(s *v1.Website) { s.Spec.Page.Content = "" }, "spec.page.content", "at least 1 chars"),
		Entry("a page that is too long", func(s *v1.Website) { s.Spec.Page.Content = strings.Repeat("x", 65537) }, "spec.page.content", "Too long"),
		Entry("a name that no Service could have", func(s *v1.Website) { s.Name = "9.lives" }, "the name of a Website is also the name of its Service"),
		Entry("a name that is too long", func(s *v1.Website) { s.Name = "a" + strings.Repeat("b", 63) }, "at most 63"),
	)

	DescribeTable("restores objects that were deleted manually",
		func(ctx SpecContext, replaced func(context.Context, *manager.Manager, *v1.Website)) {
			mgr, _ := runOperator()
			site := create(ctx, siteIn(namespace, 1, "one"))
			expectWorld(ctx, site, 1, "one")
			replaced(ctx, mgr, site)
			expectWorld(ctx, site, 1, "one")
		},
		Entry("the ConfigMap", func(ctx context.Context, m *manager.Manager, s *v1.Website) {
			replaced[*corev1.ConfigMap](ctx, m, content(s))
		}),
		Entry("the Service", func(ctx context.Context, m *manager.Manager, s *v1.Website) {
			replaced[*corev1.Service](ctx, m, key(s))
		}),
		Entry("the Deployment", func(ctx context.Context, m *manager.Manager, s *v1.Website) {
			replaced[*appsv1.Deployment](ctx, m, key(s))
		}),
		Entry("the index", func(ctx context.Context, m *manager.Manager, s *v1.Website) {
			replaced[*corev1.ConfigMap](ctx, m, index(s))
		}),
	)

	DescribeTable("reverts manual changes",
		func(ctx SpecContext, spoil func(context.Context, *v1.Website)) {
			startOperator()
			site := create(ctx, siteIn(namespace, 1, "one"))
			expectWorld(ctx, site, 1, "one")
			spoil(ctx, site)
			expectWorld(ctx, site, 1, "one")
		},
		Entry("the page", func(ctx context.Context, s *v1.Website) {
			spoil[*corev1.ConfigMap](ctx, content(s), `{"data":{"index.html":"defaced"}}`)
		}),
		Entry("the number of servers", func(ctx context.Context, s *v1.Website) {
			spoil[*appsv1.Deployment](ctx, key(s), `{"spec":{"replicas":5}}`)
		}),
		Entry("the entry in the index", func(ctx context.Context, s *v1.Website) {
			spoil[*corev1.ConfigMap](ctx, index(s), fmt.Sprintf(`{"data":{%q:null}}`, s.Name))
		}),
	)

	It("does not touch an object that does not belong to it, and reports it", func(ctx SpecContext) {
		mgr, _ := runOperator()
		theirs, err := client.For[*corev1.ConfigMap](admin).Apply(ctx,
			coreac.ConfigMap("hello-content", namespace).WithData(map[string]string{"index.html": "theirs"}))
		Expect(err).NotTo(HaveOccurred())
		site := create(ctx, siteIn(namespace, 1, "ours"))
		failing, ok := errors.AsType[*manager.FailingError](mgr.Idle(ctx))
		Expect(ok).To(BeTrue())
		Expect(failing.Keys).To(HaveExactElements(HaveField("Key", key(site).String())))
		status := get[*v1.Website](NewWithT(GinkgoT()), ctx, key(site)).Status
		ready := meta.FindStatusCondition(status.Conditions, v1.ConditionReady)
		Expect(ready).NotTo(BeNil())
		Expect(ready.Status).To(Equal(metav1.ConditionFalse))
		Expect(ready.Message).To(ContainSubstring("ConfigMap %s/hello-content: it exists and has no controlling owner, so it is left alone", namespace))
		Expect(get[*corev1.ConfigMap](NewWithT(GinkgoT()), ctx, content(site))).To(HaveField("Data", theirs.Data))

		remove[*corev1.ConfigMap](ctx, content(site))
		expectWorld(ctx, site, 1, "ours")
	})
})

// replaced deletes an object, and expects the operator to recreate it.
func replaced[T client.Object](ctx context.Context, mgr *manager.Manager, key types.NamespacedName) {
	GinkgoHelper()
	g := NewWithT(GinkgoT())
	before := get[T](g, ctx, key)
	remove[T](ctx, key)
	Expect(mgr.Idle(ctx)).To(Succeed())
	Expect(get[T](g, ctx, key).GetUID()).NotTo(Equal(before.GetUID()))
}

// spoil changes an object as a user would.
func spoil[T client.Object](ctx context.Context, key types.NamespacedName, patch string) {
	GinkgoHelper()
	_, err := client.For[T](admin).Patch(ctx, key, types.MergePatchType, []byte(patch))
	Expect(err).NotTo(HaveOccurred())
}
