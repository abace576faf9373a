// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/examples/website/operator"
)

// manifests returns the files that the kustomization in dir lists, including nested ones: CRDs,
// webhook configurations and others. `kubectl apply -k` would apply these files, since the
// kustomizations only list.
func manifests(dir string) (crds, hooks, others []string) {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	Expect(err).NotTo(HaveOccurred())
	var kustomization struct {
		Resources []string `json:"resources"`
		Images    []any    `json:"images"` // where the image comes from does not matter here
	}
	Expect(yaml.UnmarshalStrict(raw, &kustomization)).To(Succeed(), "%s does more than list resources", dir)
	for _, r := range kustomization.Resources {
		path := filepath.Join(dir, r)
		switch {
		case !strings.HasSuffix(r, ".yaml"):
			c, h, o := manifests(path)
			crds, hooks, others = append(crds, c...), append(hooks, h...), append(others, o...)
		case filepath.Base(dir) == "crd":
			crds = append(crds, path)
		case r == "manifests.yaml":
			hooks = append(hooks, path)
		default:
			others = append(others, path)
		}
	}
	return crds, hooks, others
}

// siteIn returns a Website named hello that is not created yet.
func siteIn(namespace string, replicas int32, content string) *v1.Website {
	return &v1.Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hello"},
		Spec:       v1.WebsiteSpec{Replicas: &replicas, Page: v1.Page{Content: content}},
	}
}

func create(ctx context.Context, site *v1.Website) *v1.Website {
	GinkgoHelper()
	site, err := client.For[*v1.Website](admin).Create(ctx, site)
	Expect(err).NotTo(HaveOccurred())
	return site
}

func change(ctx context.Context, site *v1.Website, replicas int32, content string) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"spec": v1.WebsiteSpec{Replicas: &replicas, Page: v1.Page{Content: content}}})
	Expect(err).NotTo(HaveOccurred())
	_, err = client.For[*v1.Website](admin).Patch(ctx, key(site), types.MergePatchType, patch)
	Expect(err).NotTo(HaveOccurred())
}

func remove[T client.Object](ctx context.Context, key types.NamespacedName) {
	GinkgoHelper()
	Expect(client.For[T](admin).Delete(ctx, key)).To(Succeed())
}

func key(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func content(site *v1.Website) types.NamespacedName {
	return types.NamespacedName{Namespace: site.Namespace, Name: site.Name + "-content"}
}

func index(site *v1.Website) types.NamespacedName {
	return types.NamespacedName{Namespace: site.Namespace, Name: operator.IndexName}
}

// get reads an object live.
func get[T client.Object](g Gomega, ctx context.Context, key types.NamespacedName) T {
	obj, err := client.For[T](admin).GetLive(ctx, key)
	g.ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return obj
}

func gone[T client.Object](ctx context.Context, key types.NamespacedName) func() bool {
	return func() bool {
		_, err := client.For[T](admin).GetLive(ctx, key)
		return apierrors.IsNotFound(err)
	}
}

// expectWorld waits until the cluster matches the spec: each owned object, the index, and last the
// status.
func expectWorld(ctx context.Context, site *v1.Website, replicas int32, page string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		cm := get[*corev1.ConfigMap](g, ctx, content(site))
		g.Expect(cm.Data).To(HaveKeyWithValue("index.html", page))
		deploy := get[*appsv1.Deployment](g, ctx, key(site))
		g.Expect(*deploy.Spec.Replicas).To(Equal(replicas))
		g.Expect(deploy.Status.ReadyReplicas).To(Equal(replicas))
		svc := get[*corev1.Service](g, ctx, key(site))
		g.Expect(svc.Spec.Selector).To(Equal(deploy.Spec.Template.Labels))
		for _, owned := range []metav1.Object{cm, deploy, svc} {
			g.Expect(metav1.IsControlledBy(owned, site)).To(BeTrue(), "%s is not owned", owned.GetName())
		}
		g.Expect(get[*corev1.ConfigMap](g, ctx, index(site)).Data).
			To(HaveKeyWithValue(site.Name, "http://"+site.Name+"."+site.Namespace+".svc"))

		now := get[*v1.Website](g, ctx, key(site))
		g.Expect(now.Status.ObservedGeneration).To(Equal(now.Generation))
		g.Expect(now.Status.ReadyReplicas).To(Equal(replicas))
		g.Expect(meta.IsStatusConditionTrue(now.Status.Conditions, v1.ConditionReady)).To(BeTrue())
		g.Expect(now.Finalizers).To(ConsistOf(v1.Finalizer))
	}).Should(Succeed())
}

// expectNothing waits until nothing is left of the site: it is gone, delisted, and its objects are
// collected.
func expectNothing(ctx context.Context, site *v1.Website) {
	GinkgoHelper()
	Eventually(ctx, gone[*v1.Website](ctx, key(site))).Should(BeTrue(), "the Website is still there")
	Expect(get[*corev1.ConfigMap](NewWithT(GinkgoT()), ctx, index(site)).Data).NotTo(HaveKey(site.Name))
	Eventually(ctx, gone[*corev1.ConfigMap](ctx, content(site))).Should(BeTrue(), "the ConfigMap is still there")
	Eventually(ctx, gone[*corev1.Service](ctx, key(site))).Should(BeTrue(), "the Service is still there")
	Eventually(ctx, gone[*appsv1.Deployment](ctx, key(site))).Should(BeTrue(), "the Deployment is still there")
}
