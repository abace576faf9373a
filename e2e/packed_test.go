// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
)

// answers counts the content types of lists and watches by the kind of their path.
type answers struct {
	next http.RoundTripper

	mu  sync.Mutex
	got map[string][]string // from content type to paths
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK {
		a.mu.Lock()
		defer a.mu.Unlock()
		form, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
		a.got[form] = append(a.got[form], r.URL.Path)
	}
	return resp, err
}

// sameForms compares all objects of two handles, several times if need be: the API server writes
// some by itself, such as its Lease, and then one handle can have seen a write that the other has
// not. It returns how many are in a namespace; elsewhere, objects of earlier scenarios disappear.
func sameForms[T cache.Object](ctx context.Context, namespace string, decoded, packed *cache.Handle[T]) (objects int) {
	GinkgoHelper()
	all := func(g Gomega, h *cache.Handle[T]) map[string]T {
		g.Expect(h.CatchUp(ctx)).To(Succeed(), h.String())
		list, err := h.List(ctx, cache.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		by := map[string]T{}
		for _, o := range list {
			by[o.GetNamespace()+"/"+o.GetName()] = o
		}
		return by
	}
	Eventually(func(g Gomega) {
		want, got := all(g, decoded), all(g, packed)
		g.Expect(got).To(Equal(want), decoded.String())
		objects = 0
		for _, o := range want {
			if o.GetNamespace() == namespace {
				objects++
			}
		}
	}).WithContext(ctx).WithTimeout(patience / 4).Should(Succeed())
	Expect(packed.State().Storage).To(Equal("packed"))
	Expect(packed.State().BrokenCount).To(BeZero())
	return objects
}

// formsOf is a kind with a handle in each form.
type formsOf struct {
	kind    schema.GroupVersionKind
	compare func(ctx context.Context, namespace string) int
}

func formsIn[T cache.Object](c *cache.Cache, kind schema.GroupVersionKind) formsOf {
	decoded := cache.ForScope[T](c, cache.Scope{Kind: kind, Storage: cache.Decoded})
	packed := cache.ForScope[T](c, cache.Scope{Kind: kind, Storage: cache.Packed})
	return formsOf{kind, func(ctx context.Context, namespace string) int {
		return sameForms(ctx, namespace, decoded, packed)
	}}
}

// listable returns the kinds that the API server lists and watches.
func listable(d discovery.DiscoveryInterface) (kinds []schema.GroupVersionKind) {
	GinkgoHelper()
	_, groups, err := d.ServerGroupsAndResources()
	Expect(err).NotTo(HaveOccurred())
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, r := range g.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") && !strings.Contains(r.Name, "/") {
				kinds = append(kinds, gv.WithKind(r.Kind))
			}
		}
	}
	return kinds
}

// F1 and F3 on the real API server.
var _ = Describe("packed caches", func() {
	It("have the objects of decoded ones, of every kind", func(ctx SpecContext) {
		seen := &answers{got: map[string][]string{}}
		cfg := rest.CopyConfig(cluster.Config())
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.next = next; return seen })
		cl, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
		Expect(err).NotTo(HaveOccurred())
		set, err := kubernetes.NewForConfig(cluster.Config())
		Expect(err).NotTo(HaveOccurred())
		c := cache.New(cl, cache.Options{})
		var forms []formsOf
		typed := 0
		for _, kind := range listable(set.Discovery()) {
			forms = append(forms, formsIn[*unstructured.Unstructured](c, kind))
			if scheme.Scheme.Recognizes(kind) && scheme.Scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind+"List")) {
				typed++
				forms = append(forms, formsIn[cache.Object](c, kind))
			}
		}
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- c.Run(running) }()
		defer func() {
			stop()
			Expect(<-done).To(Succeed())
		}()
		namespace, err := cluster.Namespace(ctx, "packed-")
		Expect(err).NotTo(HaveOccurred())
		compare := func() (objects int) {
			GinkgoHelper()
			for _, f := range forms {
				objects += f.compare(ctx, namespace)
			}
			return objects
		}
		before := compare()
		oddObjects(ctx, set, namespace)
		after := compare()
		Expect(after).To(BeNumerically(">", before))
		Expect(set.CoreV1().Secrets(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
		Expect(compare()).To(BeNumerically("<", after))
		Expect(c.States()).To(HaveLen(len(forms) * 2))
		GinkgoWriter.Printf("%d kinds, %d of them typed, %d objects of its own\n", len(forms)-typed, typed, after)
		Expect(typed).To(BeNumerically(">", 40))
		seen.mu.Lock()
		defer seen.mu.Unlock()
		Expect(seen.got["application/vnd.kubernetes.protobuf"]).To(ContainElement(HaveSuffix("/secrets")))
		// Unstructured objects need JSON.
		Expect(seen.got["application/json"]).To(ContainElement(HaveSuffix("/secrets")))
	}, SpecTimeout(patience))
})

// oddObjects creates and changes objects with odd names, bytes and managers.
func oddObjects(ctx context.Context, set kubernetes.Interface, namespace string) {
	GinkgoHelper()
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"odd": "\"<é\n\u2028"}}
	}
	_, err := set.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: named("bytes"), Data: map[string][]byte{"x": {0, 255, '"', '\n'}}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	m, err := set.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: named("bytes"), BinaryData: map[string][]byte{"x": {1, 2}}, Data: map[string]string{"y": "é"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = set.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named(`a:<b>"c\é`), Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"*"}}}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: m.Name, UID: m.UID}}
	d := &appsv1.Deployment{ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: pod}}
	d.OwnerReferences, d.Finalizers = owner, []string{"example.com/kept"}
	_, err = set.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, manager := range []string{"one", "two"} {
		_, err = set.AppsV1().Deployments(namespace).Patch(ctx, "d", types.ApplyPatchType,
			[]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"by":"both"}}}`), metav1.PatchOptions{FieldManager: manager})
		Expect(err).NotTo(HaveOccurred())
	}
	// The finalizer keeps it.
	Expect(set.AppsV1().Deployments(namespace).Delete(ctx, "d", metav1.DeleteOptions{})).To(Succeed())
}
