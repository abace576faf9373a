// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/ledger"
)

// ledgerCase makes writes with a context that carries a ledger, by JSON or protobuf clients.
type ledgerCase struct {
	ctx       context.Context //nolint:containedctx // of one spec
	ledger    *journal.Journal
	clientset kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	namespace string
}

func newLedgerCase(ctx context.Context, contentType string) *ledgerCase {
	GinkgoHelper()
	own, err := client.New(cluster.Config(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(own.Close)
	cfg := own.Config()
	c := &ledgerCase{ledger: journal.New(journal.Origin{Controller: "ledger"})}
	c.ctx = journal.With(ctx, c.ledger)
	c.dynamic, err = dynamic.NewForConfigAndClient(cfg, own.HTTPClient())
	Expect(err).NotTo(HaveOccurred())
	c.metadata, err = metadata.NewForConfigAndClient(cfg, own.HTTPClient())
	Expect(err).NotTo(HaveOccurred())
	cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType+",application/json"
	c.clientset, err = kubernetes.NewForConfigAndClient(cfg, own.HTTPClient())
	Expect(err).NotTo(HaveOccurred())
	c.namespace, err = cluster.Namespace(ctx, "ledger-")
	Expect(err).NotTo(HaveOccurred())
	return c
}

// newest returns the last of the n writes so far.
func (c *ledgerCase) newest(n int) ledger.Write {
	GinkgoHelper()
	writes := c.ledger.Writes()
	Expect(writes).To(HaveLen(n))
	return writes[n-1]
}

// shows compares the last write with the object that the caller received.
func (c *ledgerCase) shows(n int, effect ledger.Effect, obj metav1.Object) {
	GinkgoHelper()
	w := c.newest(n)
	Expect(w.Effect).To(Equal(effect), "%+v", w)
	Expect(w.Unknown).To(BeEmpty())
	Expect(w.Name).To(Equal(obj.GetName()))
	Expect(w.Namespace).To(Equal(obj.GetNamespace()))
	Expect(w.UID).To(Equal(obj.GetUID()))
	Expect(w.ResourceVersion).To(Equal(obj.GetResourceVersion()))
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.test/none"}}}
}

var _ = Describe("The ledger", func() {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		Context("in "+contentType, func() {
			It("knows what an object is after each write", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				maps := c.clientset.CoreV1().ConfigMaps(c.namespace)
				m, err := maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}, Data: map[string]string{"x": strings.Repeat("x", 300<<10)}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(1, ledger.Stored, m)
				_, err = maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}, metav1.CreateOptions{DryRun: []string{"All"}})
				Expect(err).NotTo(HaveOccurred())
				old := m.DeepCopy()
				m.Data["y"] = "z"
				m, err = maps.Update(c.ctx, m, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(2, ledger.Stored, m)
				_, err = maps.Update(c.ctx, old, metav1.UpdateOptions{})
				Expect(err).To(MatchError(ContainSubstring("has been modified")))
				m, err = maps.Update(c.ctx, m, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(3, ledger.Unchanged, m)
				apply := coreac.ConfigMap(m.Name, c.namespace).WithData(map[string]string{"z": "z"})
				m, err = maps.Apply(c.ctx, apply, metav1.ApplyOptions{FieldManager: "ledger"})
				Expect(err).NotTo(HaveOccurred())
				c.shows(4, ledger.Stored, m)
				m, err = maps.Apply(c.ctx, apply, metav1.ApplyOptions{FieldManager: "ledger"})
				Expect(err).NotTo(HaveOccurred())
				c.shows(5, ledger.Unchanged, m)
				m, err = maps.Patch(c.ctx, m.Name, types.MergePatchType, []byte(`{"data":{"x":null}}`), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(6, ledger.Stored, m)
				Expect(maps.Delete(c.ctx, m.Name, metav1.DeleteOptions{DryRun: []string{"All"}})).To(Succeed())
				Expect(maps.Delete(c.ctx, m.Name, metav1.DeleteOptions{})).To(Succeed())
				w := c.newest(7)
				Expect([]any{w.Effect, w.UID, w.Unknown}).To(Equal([]any{ledger.Gone, m.UID, ""}))
				Expect(maps.Delete(c.ctx, m.Name, metav1.DeleteOptions{})).NotTo(Succeed())
				Expect(c.ledger.Writes()).To(HaveLen(7))
				Expect(c.ledger.Requests()).To(HaveLen(11))
			})

			It("knows whether a deleted object is gone", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				maps := c.clientset.CoreV1().ConfigMaps(c.namespace)
				held, err := maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.test/a", "example.test/b"}}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(maps.Delete(c.ctx, "held", metav1.DeleteOptions{})).To(Succeed())
				marked, err := maps.Get(c.ctx, "held", metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(2, ledger.Deleting, marked)
				marked.Finalizers = marked.Finalizers[1:]
				marked, err = maps.Update(c.ctx, marked, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(3, ledger.Stored, marked)
				last, err := maps.Patch(c.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(4, ledger.Gone, last)
				Expect(last.UID).To(Equal(held.UID))
				_, err = maps.Get(c.ctx, "held", metav1.GetOptions{})
				Expect(err).To(MatchError(ContainSubstring("not found")))
			})

			It("records the same for an update, which has a version", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				maps := c.clientset.CoreV1().ConfigMaps(c.namespace)
				held, err := maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.test/a"}}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(maps.Delete(c.ctx, "held", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &held.UID}})).To(Succeed())
				held, err = maps.Get(c.ctx, "held", metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				held.Finalizers = nil
				last, err := maps.Update(c.ctx, held, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(3, ledger.Gone, last)
			})

			It("distinguishes propagation policies", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				maps := c.clientset.CoreV1().ConfigMaps(c.namespace)
				for i, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground} {
					name := fmt.Sprintf("m-%d", i)
					m, err := maps.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
					Expect(err).NotTo(HaveOccurred())
					Expect(maps.Delete(c.ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})).To(Succeed())
					w := c.newest(2 * (i + 1))
					Expect(w.UID).To(Equal(m.UID))
					Expect(w.Effect).To(Equal([]ledger.Effect{ledger.Deleting, ledger.Deleting, ledger.Gone}[i]), "%s: %+v", policy, w)
				}
			})

			It("knows pods, which return what was deleted", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				pods := c.clientset.CoreV1().Pods(c.namespace)
				_, err := c.clientset.CoreV1().ServiceAccounts(c.namespace).Create(c.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "ledger"}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				spec := podSpec()
				spec.ServiceAccountName = "ledger"
				automount := false
				spec.AutomountServiceAccountToken = &automount
				create := func(name, node string) *corev1.Pod {
					GinkgoHelper()
					spec := spec
					spec.NodeName = node
					p, err := pods.Create(c.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
					Expect(err).NotTo(HaveOccurred())
					return p
				}
				p := create("unscheduled", "")
				Expect(pods.Delete(c.ctx, p.Name, metav1.DeleteOptions{})).To(Succeed())
				w := c.newest(3)
				Expect([]any{w.Effect, w.UID}).To(Equal([]any{ledger.Gone, p.UID}), "%+v", w)
				Expect(w.ResourceVersion).NotTo(BeEmpty())

				p = create("scheduled", "nowhere")
				Expect(pods.Delete(c.ctx, p.Name, metav1.DeleteOptions{})).To(Succeed())
				marked, err := pods.Get(c.ctx, p.Name, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(5, ledger.Deleting, marked)
				marked.Status.Message = "going"
				marked, err = pods.UpdateStatus(c.ctx, marked, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(6, ledger.Stored, marked) // no finalizers, but a grace period
				now := int64(0)
				Expect(pods.Delete(c.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})).To(Succeed())
				w = c.newest(7)
				Expect([]any{w.Effect, w.UID}).To(Equal([]any{ledger.Gone, p.UID}), "%+v", w)

				p = create("evicted", "nowhere")
				dry := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: c.namespace}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"All"}}}
				Expect(pods.EvictV1(c.ctx, dry)).To(Succeed())
				Expect(c.ledger.Writes()).To(HaveLen(8))
				dry.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
				Expect(pods.EvictV1(c.ctx, dry)).To(Succeed())
				w = c.newest(9)
				Expect([]any{w.Effect, w.UID, w.Name, w.Subresource}).To(Equal([]any{ledger.Accepted, p.UID, p.Name, "eviction"}), "%+v", w)
				Expect(w.Unknown).NotTo(BeEmpty())

				p = create("bound", "")
				Expect(pods.Bind(c.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "nowhere"}}, metav1.CreateOptions{})).To(Succeed())
				Expect(c.newest(11).Effect).To(Equal(ledger.Accepted))
			})

			It("knows scale and status, whose answers are about the same object", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				deployments := c.clientset.AppsV1().Deployments(c.namespace)
				labels := map[string]string{"a": "b"}
				d, err := deployments.Create(c.ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
				}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				d.Status.ObservedGeneration = 1
				d, err = deployments.UpdateStatus(c.ctx, d, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(2, ledger.Stored, d)
				_, err = deployments.UpdateScale(c.ctx, "d", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: c.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, metav1.UpdateOptions{})
				Expect(err).NotTo(HaveOccurred())
				w := c.newest(3)
				d, err = deployments.Get(c.ctx, "d", metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(d.Spec.Replicas).To(HaveValue(Equal(int32(3))))
				c.shows(3, ledger.Stored, d)
				Expect(w.Resource).To(Equal("deployments"))
			})

			It("lists the scope of a deletecollection", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				maps := c.clientset.CoreV1().ConfigMaps(c.namespace)
				uids := map[string]types.UID{}
				for _, name := range []string{"a", "b"} {
					m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"x": "y"}}}
					if name == "b" {
						m.Finalizers = []string{"example.test/a"}
					}
					m, err := maps.Create(c.ctx, m, metav1.CreateOptions{})
					Expect(err).NotTo(HaveOccurred())
					uids[name] = m.UID
				}
				dry := metav1.DeleteOptions{DryRun: []string{"All"}}
				Expect(maps.DeleteCollection(c.ctx, dry, metav1.ListOptions{LabelSelector: "x=y"})).To(Succeed())
				Expect(maps.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "x=none"})).To(Succeed())
				Expect(c.ledger.Writes()).To(HaveLen(2))
				Expect(maps.DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "x=y"})).To(Succeed())
				writes := c.ledger.Writes()
				Expect(writes).To(HaveLen(4))
				for _, w := range writes[2:] {
					Expect([]any{w.Effect, w.UID, w.Namespace, w.ResourceVersion}).To(Equal([]any{ledger.Accepted, uids[w.Name], c.namespace, ""}), "%+v", w)
				}
			})

			It("knows that a deleted namespace is not gone immediately", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				name := c.namespace + "-2"
				n, err := c.clientset.CoreV1().Namespaces().Create(c.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				c.shows(1, ledger.Stored, n)
				Expect(c.clientset.CoreV1().Namespaces().Delete(c.ctx, name, metav1.DeleteOptions{})).To(Succeed())
				w := c.newest(2)
				Expect([]any{w.Effect, w.UID, w.Namespace}).To(Equal([]any{ledger.Deleting, n.UID, ""}), "%+v", w)
			})

			It("ignores requests that store nothing", func(ctx SpecContext) {
				c := newLedgerCase(ctx, contentType)
				_, err := c.clientset.CoreV1().ServiceAccounts(c.namespace).Create(c.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
				Expect(err).NotTo(HaveOccurred())
				token := schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(token)
				u.SetName("s")
				accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
				_, err = c.dynamic.Resource(accounts).Namespace(c.namespace).Create(c.ctx, u, metav1.CreateOptions{}, "token")
				Expect(err).NotTo(HaveOccurred())
				Expect(c.ledger.Writes()).To(HaveLen(1))
				Expect(c.ledger.Requests()).To(HaveLen(2))
			})
		})
	}

	It("knows custom resources, and answers of another form", func(ctx SpecContext) {
		installLamps(ctx)
		c := newLedgerCase(ctx, runtime.ContentTypeJSON)
		r := c.dynamic.Resource(lamps).Namespace(c.namespace)
		held := lamp("l", 5)
		held.SetFinalizers([]string{"example.test/a"})
		u, err := r.Create(c.ctx, held, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		c.shows(1, ledger.Stored, u)
		m, err := c.metadata.Resource(lamps).Namespace(c.namespace).Patch(c.ctx, "l", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		c.shows(2, ledger.Stored, m)
		table, err := c.clientset.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("apis", lamps.Group, lamps.Version, "namespaces", c.namespace, "lamps", "l").
			SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Body([]byte(`{"metadata":{"labels":{"a":"c"}}}`)).DoRaw(c.ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(table).To(ContainSubstring(`"kind":"Table"`))
		u, err = r.Get(c.ctx, "l", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		c.shows(3, ledger.Stored, u)
		Expect(r.Delete(c.ctx, "l", metav1.DeleteOptions{})).To(Succeed())
		u, err = r.Patch(c.ctx, "l", types.MergePatchType, []byte(`{"watts":6}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.ledger.Writes()[3].Effect).To(Equal(ledger.Deleting))
		c.shows(5, ledger.Stored, u)
		u, err = r.Patch(c.ctx, "l", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		c.shows(6, ledger.Gone, u)
		u, err = r.Create(c.ctx, lamp("l", 5), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Delete(c.ctx, "l", metav1.DeleteOptions{})).To(Succeed())
		w := c.newest(8)
		Expect([]any{w.Effect, w.UID, w.Unknown}).To(Equal([]any{ledger.Gone, u.GetUID(), ""}))
	})
})
