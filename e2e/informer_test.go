// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/hook"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

const lampCRD = "lamps.scenario.setpoint.dev"

// lamp returns a lamp whose watts may have any value and type.
func lamp(name string, watts any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lamps.GroupVersion().String(), "kind": "Lamp", "metadata": map[string]any{"name": name}, "watts": watts,
	}}
}

func (w *world) createLamp(ctx context.Context, name string, watts any) {
	GinkgoHelper()
	_, err := w.dynamic.Resource(lamps).Namespace(w.namespace).Create(ctx, lamp(name, watts), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func (w *world) removeCRD(ctx context.Context) {
	GinkgoHelper()
	if err := w.dynamic.Resource(crds).Delete(ctx, lampCRD, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// installLamps installs the CRD. If another spec has just deleted it, it waits until the CRD is
// gone: until then it accepts no objects.
func installLamps(ctx context.Context) {
	GinkgoHelper()
	h, err := rest.HTTPClientFor(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	defer h.CloseIdleConnections()
	d, err := dynamic.NewForConfigAndClient(cluster.Config(), h)
	Expect(err).NotTo(HaveOccurred())
	crd, err := d.Resource(crds).Get(ctx, lampCRD, metav1.GetOptions{})
	if err == nil && crd.GetDeletionTimestamp() != nil {
		going, err := d.Resource(crds).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + lampCRD, ResourceVersion: crd.GetResourceVersion()})
		Expect(err).NotTo(HaveOccurred())
		defer going.Stop()
		for e := range going.ResultChan() {
			if e.Type == watch.Deleted {
				break
			}
		}
	}
	Expect(cluster.InstallCRDs(ctx, "testdata/lamps.yaml")).To(Succeed())
}

// churn creates, changes and deletes config maps from several goroutines.
func (w *world) churn(ctx context.Context, writes int) {
	GinkgoHelper()
	maps := w.direct.CoreV1().ConfigMaps(w.namespace)
	var writers sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() {
			defer GinkgoRecover()
			for n := range writes / 4 {
				name := fmt.Sprintf("m-%d-%d", writer, rand.IntN(25))
				data, err := json.Marshal(map[string]any{"data": map[string]string{"n": fmt.Sprint(n)}})
				Expect(err).NotTo(HaveOccurred())
				switch rand.IntN(5) {
				case 0:
					err = maps.Delete(ctx, name, metav1.DeleteOptions{})
				default:
					_, err = maps.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
				}
				if apierrors.IsNotFound(err) {
					_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				}
				Expect(err).NotTo(HaveOccurred())
			}
		})
	}
	writers.Wait()
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

var _ = Describe("Informers", func() {
	// S4, S5
	It("wait for a CRD that is installed late, deleted and reinstalled with another schema, without delaying others", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		w.removeCRD(ctx)
		asked := w.proxy.Add(fault.Rule{Match: fault.Match{Func: func(r *fault.Request) bool {
			return strings.HasSuffix(r.Path, lamps.GroupVersion().String())
		}}})
		maps, lampHandle := cache.For[*corev1.ConfigMap](w.cache), cache.For[*Lamp](w.cache)
		mapsController, mapsMirror := mirrorOf("maps", maps)
		lampsController, lampsMirror := mirrorOf("lamps", lampHandle)
		w.start(mapsController, lampsController)
		w.reaches(ctx, lampHandle.State, hook.Waiting)
		w.churn(ctx, 20)
		mapsMirror.follows(ctx, w.dynamic.Resource(configMaps))
		Expect(asked.WaitHits(ctx, 2)).To(Succeed()) // 4 seconds after the start
		for _, round := range []string{"comes", "returns"} {
			installLamps(ctx)
			installed := time.Now()
			w.createLamp(ctx, "a", int64(1))
			lampsMirror.follows(ctx, w.dynamic.Resource(lamps))
			GinkgoWriter.Printf("the CRD %s: reconciled %s after it was served\n", round, time.Since(installed).Round(time.Millisecond))

			By("changing its schema under load")
			var loading sync.WaitGroup
			loading.Go(func() {
				defer GinkgoRecover()
				for n := range 100 {
					w.createLamp(ctx, fmt.Sprint(round, n), int64(n))
				}
			})
			for n := range 5 {
				patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/colour%d","value":{"type":"string"}}]`, n)
				_, err := w.dynamic.Resource(crds).Patch(ctx, lampCRD, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
			loading.Wait()
			lampsMirror.follows(ctx, w.dynamic.Resource(lamps))

			By("removing it")
			w.removeCRD(ctx)
			s := w.reaches(ctx, lampHandle.State, hook.Waiting)
			Expect(s.String()).To(ContainSubstring("does not serve Lamp of scenario.setpoint.dev/v1; install its CRD"))
			Expect(lampHandle.Stale()).To(HaveOccurred())
			w.churn(ctx, 20)
			mapsMirror.follows(ctx, w.dynamic.Resource(configMaps))
		}
	}, NodeTimeout(patience))

	// S4
	It("fail by name, only the one of five whose permission is revoked, and recover when it is granted", func(ctx SpecContext) {
		cfg, err := cluster.ConfigFor("limited")
		Expect(err).NotTo(HaveOccurred())
		w := newWorld(ctx, cfg)
		roles := w.direct.RbacV1().ClusterRoles()
		resources := []string{"configmaps", "secrets", "services", "serviceaccounts", "deployments"}
		allow := func(resource string) *rbacv1.ClusterRole {
			return &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "limited-" + resource},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"", "apps"}, Resources: []string{resource}, Verbs: []string{"list", "watch"}}},
			}
		}
		for _, resource := range resources {
			_, err := roles.Create(ctx, allow(resource), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = w.direct.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "limited-" + resource},
				RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "limited-" + resource},
				Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "limited"}},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		maps, secrets := cache.For[*corev1.ConfigMap](w.cache), cache.For[*corev1.Secret](w.cache)
		c1, mapsMirror := mirrorOf("maps", maps)
		c2, secretsMirror := mirrorOf("secrets", secrets)
		c3, _ := mirrorOf("services", cache.For[*corev1.Service](w.cache))
		c4, _ := mirrorOf("accounts", cache.For[*corev1.ServiceAccount](w.cache))
		c5, _ := mirrorOf("deployments", cache.For[*appsv1.Deployment](w.cache))
		w.start(c1, c2, c3, c4, c5)
		w.churn(ctx, 20)
		mapsMirror.follows(ctx, w.dynamic.Resource(configMaps))
		for _, c := range []*controller.Controller[types.NamespacedName]{c1, c2, c3, c4, c5} {
			Eventually(ctx, c.Synced()).Should(BeClosed())
		}

		By("revoking one right")
		Expect(roles.Delete(ctx, "limited-configmaps", metav1.DeleteOptions{})).To(Succeed())
		watches := fault.Match{Verbs: []string{"watch"}, Resources: []string{"configmaps"}}
		// A revocation is noticed when the watch ends.
		cut := w.proxy.Add(fault.Rule{Match: watches, CutAfter: 200 * time.Millisecond})
		s := w.reaches(ctx, maps.State, hook.Failing)
		cut.Remove()
		Expect(s.String()).To(SatisfyAll(ContainSubstring("ConfigMap.v1: failing"), ContainSubstring(`User "limited" cannot`)))
		Expect(apierrors.IsForbidden(s.Err)).To(BeTrue())
		w.churn(ctx, 20)
		_, err = w.direct.CoreV1().Secrets(w.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		secretsMirror.follows(ctx, w.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}))
		Expect(maps.State().Phase).To(Equal(hook.Failing))
		Expect(secrets.State().Phase).To(Equal(hook.Synced))

		By("granting it again")
		_, err = roles.Create(ctx, allow("configmaps"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		mapsMirror.follows(ctx, w.dynamic.Resource(configMaps))
		w.reaches(ctx, maps.State, hook.Synced)
	}, NodeTimeout(patience))

	// S2
	It("lose nothing while every watch is cut after 200 ms", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		c, m := mirrorOf("maps", cache.For[*corev1.ConfigMap](w.cache))
		cut := w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, CutAfter: 200 * time.Millisecond})
		w.start(c)
		w.churn(ctx, 2000)
		GinkgoWriter.Printf("%d watches were cut\n", cut.Hits())
		Expect(cut.Hits()).To(BeNumerically(">", 3))
		m.follows(ctx, w.dynamic.Resource(configMaps))
	}, NodeTimeout(patience))

	// S2
	It("lose nothing when the API server restarts in the middle", Serial, func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		maps := cache.For[*corev1.ConfigMap](w.cache)
		c, m := mirrorOf("maps", maps)
		w.start(c)
		w.churn(ctx, 200)
		m.follows(ctx, w.dynamic.Resource(configMaps))
		Expect(cluster.StopAPIServer()).To(Succeed())
		w.reaches(ctx, maps.State, hook.Failing)
		key := types.NamespacedName{Namespace: "kube-system", Name: "extension-apiserver-authentication"}
		_, err := maps.Get(ctx, key)
		Expect(err).NotTo(HaveOccurred(), "the last known state")
		Expect(maps.Stale()).To(MatchError(ContainSubstring("failing")))
		Expect(cluster.StartAPIServer(ctx)).To(Succeed())
		w.churn(ctx, 200)
		m.follows(ctx, w.dynamic.Resource(configMaps))
		w.reaches(ctx, maps.State, hook.Synced)
	}, NodeTimeout(patience))

	// S4
	It("deliver 999 of 1000 objects when one cannot be decoded, and name that one", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		installLamps(ctx)
		for n := range 998 {
			w.createLamp(ctx, fmt.Sprint("l", n), int64(n))
		}
		w.createLamp(ctx, "odd", "sixty")
		h := cache.ForScope[*Lamp](w.cache, cache.Scope{Namespaces: cache.NewSet(w.namespace)})
		c, m := mirrorOf("lamps", h)
		w.start(c)
		w.createLamp(ctx, "last", int64(999))
		m.until(ctx, func(seen map[types.NamespacedName]string) bool { return len(seen) == 999 })
		odd := types.NamespacedName{Namespace: w.namespace, Name: "odd"}
		Expect(h.State().Broken).To(ConsistOf(HavePrefix(odd.String() + ": it cannot be decoded: json: cannot unmarshal string into Go struct field Lamp.watts of type int")))
		_, err := h.Get(ctx, odd)
		Expect(err).To(MatchError(ContainSubstring("it cannot be decoded")))
		Expect(apierrors.IsNotFound(err)).To(BeFalse())

		By("mending it")
		_, err = w.dynamic.Resource(lamps).Namespace(w.namespace).Patch(ctx, "odd", types.MergePatchType, []byte(`{"watts":60}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		m.follows(ctx, w.dynamic.Resource(lamps).Namespace(w.namespace))
		Expect(h.State().Broken).To(BeEmpty())
		w.removeCRD(ctx)
	}, NodeTimeout(patience))

	It("see an object enter and leave their selector", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		h := cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{
			Namespaces: cache.NewSet(w.namespace), Labels: labels.SelectorFromSet(labels.Set{"in": "yes"}),
		})
		c, m := mirrorOf("maps", h)
		w.start(c)
		maps := w.direct.CoreV1().ConfigMaps(w.namespace)
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, want := range []struct {
			label string
			seen  int
		}{{"yes", 1}, {"no", 0}, {"yes", 1}} {
			_, err := maps.Patch(ctx, "a", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"in":%q}}}`, want.label), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			m.until(ctx, func(seen map[types.NamespacedName]string) bool { return len(seen) == want.seen })
		}
	}, NodeTimeout(patience))
})
