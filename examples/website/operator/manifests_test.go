// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
)

// All other specs show that the permissions suffice: the operator has no others.
var _ = Describe("The manifests", func() {
	It("are all listed by the kustomization", func() {
		crds, hooks, others := manifests("../config/default")
		var found []string
		for _, dir := range []string{"crd", "manager", "metrics", "rbac", "webhook"} {
			files, err := filepath.Glob(filepath.Join("../config", dir, "*.yaml"))
			Expect(err).NotTo(HaveOccurred())
			for _, f := range files {
				if filepath.Base(f) != "kustomization.yaml" {
					found = append(found, f)
				}
			}
		}
		Expect(slices.Concat(crds, hooks, others)).To(ConsistOf(found))
	})

	It("make a Deployment whose pods the namespace admits", func(ctx SpecContext) {
		Eventually(ctx, func(g Gomega) {
			deploy := get[*appsv1.Deployment](g, ctx, types.NamespacedName{Namespace: systemNamespace, Name: operator.Name})
			g.Expect(deploy.Status.Replicas).To(BeEquivalentTo(2))
			pods, err := clientset.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(HaveLen(2))
		}).Should(Succeed())
	})

	It("include a sample that is accepted", func(ctx SpecContext) {
		Expect(cluster.Apply(ctx, "../config/samples/website.yaml")).To(Succeed())
		remove[*v1.Website](ctx, types.NamespacedName{Namespace: "default", Name: "hello"})
	})

	DescribeTable("do not let the operator",
		func(ctx SpecContext, try func(context.Context, kubernetes.Interface, *client.Client) error) {
			as, err := client.New(account, client.Options{Scheme: admin.Scheme()})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(as.Close)
			cs, err := kubernetes.NewForConfigAndClient(account, as.HTTPClient())
			Expect(err).NotTo(HaveOccurred())
			err = try(ctx, cs, as)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "got %v", err)
			Expect(err).To(MatchError(ContainSubstring("system:serviceaccount:website-system:website-operator")))
		},
		Entry("read Secrets", func(ctx context.Context, cs kubernetes.Interface, _ *client.Client) error {
			_, err := cs.CoreV1().Secrets(systemNamespace).List(ctx, metav1.ListOptions{})
			return err
		}),
		Entry("delete what it owns", func(ctx context.Context, cs kubernetes.Interface, _ *client.Client) error {
			return cs.AppsV1().Deployments("default").Delete(ctx, "hello", metav1.DeleteOptions{})
		}),
		Entry("make pods", func(ctx context.Context, cs kubernetes.Interface, _ *client.Client) error {
			return cs.CoreV1().RESTClient().Verb(http.MethodPost).Namespace("default").Resource("pods").Body([]byte("{}")).Do(ctx).Error()
		}),
		Entry("create Websites", func(ctx context.Context, _ kubernetes.Interface, as *client.Client) error {
			_, err := client.For[*v1.Website](as).Create(ctx, siteIn("default", 1, "x"))
			return err
		}),
		Entry("delete Websites", func(ctx context.Context, _ kubernetes.Interface, as *client.Client) error {
			return client.For[*v1.Website](as).Delete(ctx, types.NamespacedName{Namespace: "default", Name: "hello"})
		}),
		Entry("take Leases in other namespaces", func(ctx context.Context, cs kubernetes.Interface, _ *client.Client) error {
			_, err := cs.CoordinationV1().Leases("kube-system").Get(ctx, operator.Name, metav1.GetOptions{})
			return err
		}),
		Entry("take Leases of others in its own", func(ctx context.Context, cs kubernetes.Interface, _ *client.Client) error {
			_, err := cs.CoordinationV1().Leases(systemNamespace).Get(ctx, "another", metav1.GetOptions{})
			return err
		}),
	)
})
