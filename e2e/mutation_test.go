// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/ledger"
)

// Blind is a custom resource with a status subresource. Its CRD has fields that this type lacks.
type Blind struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   BlindSpec   `json:"spec"`
	Status BlindStatus `json:"status,omitempty"` //nolint:modernize // as generated types have it
}

// BlindSpec is the spec of a Blind.
type BlindSpec struct {
	Height int      `json:"height,omitempty"`
	Slats  []string `json:"slats,omitempty"`
}

// BlindStatus is the status of a Blind.
type BlindStatus struct {
	Position int `json:"position,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (b *Blind) DeepCopyObject() runtime.Object {
	c := *b
	b.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Slats = append([]string(nil), b.Spec.Slats...)
	return &c
}

// newWritingOf is newWriting with options, and with the kind Blind.
func newWritingOf(ctx context.Context, o client.Options) *writing {
	GinkgoHelper()
	w := newWriting(ctx)
	Expect(cluster.InstallCRDs(ctx, "testdata/blinds.yaml")).To(Succeed())
	o.Scheme, o.FieldOwner = newScheme(), "writing"
	o.Scheme.AddKnownTypes(lamps.GroupVersion(), &Blind{})
	var err error
	w.Client, err = client.New(cluster.Config(), o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Close)
	return w
}

func (w *writing) blind() *Blind {
	return &Blind{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "b"}}
}

// raw returns the stored Blind with all of its fields.
func (w *writing) raw() map[string]any {
	GinkgoHelper()
	kind := lamps.GroupVersion().WithKind("Blind")
	return must(client.ForKind[*unstructured.Unstructured](w.Client, kind).GetLive(w.ctx, w.key("b"))).Object
}

// paint sets the fields that the Go type does not have.
func (w *writing) paint() {
	GinkgoHelper()
	blinds := client.For[*Blind](w.Client)
	must(blinds.Patch(w.ctx, w.key("b"), types.MergePatchType, []byte(`{"spec":{"color":"red"}}`), client.FieldOwner("painter")))
	must(blinds.PatchStatus(w.ctx, w.key("b"), types.MergePatchType, []byte(`{"status":{"note":"dry"}}`), client.FieldOwner("painter")))
}

func (w *writing) configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
}

func counted(n string) int {
	GinkgoHelper()
	if n == "" {
		return 0
	}
	return must(strconv.Atoi(n))
}

func written(w *writing) int { return len(w.ledger.Writes()) }

var _ = Describe("create or update", func() {
	It("creates, updates, and sends nothing without a change", func(ctx SpecContext) {
		w := newWriting(ctx)
		maps := client.For[*corev1.ConfigMap](w.Client)
		want := func(from *corev1.ConfigMap, color string, result client.Result) *corev1.ConfigMap {
			GinkgoHelper()
			m, is, err := client.CreateOrUpdate(w.ctx, maps, from, func(m *corev1.ConfigMap) error {
				m.Data = map[string]string{"color": color}
				return nil
			})
			Expect(err).NotTo(HaveOccurred())
			Expect(is).To(Equal(result))
			Expect(m.Data).To(HaveKeyWithValue("color", color))
			Expect(m.ResourceVersion).To(Equal(must(maps.GetLive(w.ctx, w.key("m"))).ResourceVersion))
			return m
		}
		want(w.configMap("m"), "red", client.Created)
		want(w.configMap("m"), "red", client.Unchanged)
		Expect(written(w)).To(Equal(1))
		m := want(w.configMap("m"), "blue", client.Updated)
		Expect(written(w)).To(Equal(2))

		By("a cached object as the starting point")
		reads := w.sent("get", "configmaps")
		want(m, "blue", client.Unchanged)
		Expect(w.sent("get", "configmaps")).To(Equal(reads+1), "only the test reads")
		must(maps.Patch(w.ctx, w.key("m"), types.MergePatchType, []byte(`{"data":{"size":"xl"},"metadata":{"labels":{"a":"b"}}}`)))
		newer := want(m, "green", client.Updated) // m is stale
		Expect(newer.Labels).To(HaveKeyWithValue("a", "b"))

		By("an object that is gone, or was replaced")
		Expect(maps.Delete(w.ctx, w.key("m"))).To(Succeed())
		created := want(newer, "black", client.Created)
		Expect(created.Labels).To(BeEmpty(), "the new object has nothing of the old one")
		want(newer, "white", client.Updated)
		Expect(must(maps.GetLive(w.ctx, w.key("m"))).UID).To(Equal(created.UID))
	}, NodeTimeout(patience))

	It("loses no update of concurrent writers", func(ctx SpecContext) {
		w := newWriting(ctx)
		maps := client.For[*corev1.ConfigMap](w.Client)
		const writers, each = 8, 12
		var conflicts atomic.Int64
		var all sync.WaitGroup
		for n := range writers {
			all.Go(func() {
				defer GinkgoRecover()
				own := "w" + strconv.Itoa(n)
				for range each {
					_, _, err := client.CreateOrUpdate(w.ctx, maps, w.configMap("m"), func(m *corev1.ConfigMap) error {
						if m.Data == nil {
							m.Data = map[string]string{}
						}
						m.Data["all"] = strconv.Itoa(counted(m.Data["all"]) + 1)
						m.Data[own] = strconv.Itoa(counted(m.Data[own]) + 1)
						m.ResourceVersion = "" // in vain
						return nil
					})
					for apierrors.IsConflict(err) { // as a controller would retry
						conflicts.Add(1)
						_, _, err = client.CreateOrUpdate(w.ctx, maps, w.configMap("m"), func(m *corev1.ConfigMap) error {
							m.Data["all"] = strconv.Itoa(counted(m.Data["all"]) + 1)
							m.Data[own] = strconv.Itoa(counted(m.Data[own]) + 1)
							return nil
						})
					}
					Expect(err).NotTo(HaveOccurred())
				}
			})
		}
		all.Wait()
		m := must(maps.GetLive(w.ctx, w.key("m")))
		Expect(m.Data["all"]).To(Equal(strconv.Itoa(writers * each)))
		for n := range writers {
			Expect(m.Data["w"+strconv.Itoa(n)]).To(Equal(strconv.Itoa(each)))
		}
		GinkgoWriter.Println(w.sent("update", "configmaps"), "updates were sent,", conflicts.Load(), "calls gave up")
		Expect(w.sent("update", "configmaps")).To(BeNumerically(">", writers*each), "there were conflicts")
	}, NodeTimeout(patience))

	It("reports a no-op that it could not see, and a dry run", func(ctx SpecContext) {
		w := newWriting(ctx)
		deployments := client.For[*appsv1.Deployment](w.Client)
		must(deployments.Apply(w.ctx, w.web("a")))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
		_, is, err := client.CreateOrUpdate(w.ctx, deployments, d, func(d *appsv1.Deployment) error {
			d.Spec.Replicas = nil // the API server's default is what it has
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(is).To(Equal(client.Unchanged))
		Expect(w.sent("update", "deployments")).To(Equal(1))
		Expect(w.ledger.Writes()[1].Effect).To(Equal(ledger.Unchanged))
		scale := func(d *appsv1.Deployment) error {
			d.Spec.Replicas = new(int32(3))
			return nil
		}
		version := must(deployments.GetLive(w.ctx, w.key("web"))).ResourceVersion
		_, is, err = client.CreateOrUpdate(w.ctx, deployments, d, scale, client.DryRun())
		Expect([]any{is, err}).To(Equal([]any{client.Updated, nil}))
		_, is, err = client.CreateOrPatch(w.ctx, deployments, d, scale, client.DryRun())
		Expect([]any{is, err}).To(Equal([]any{client.Updated, nil}))
		Expect(must(deployments.GetLive(w.ctx, w.key("web"))).ResourceVersion).To(Equal(version))
	}, NodeTimeout(patience))

	It("patches what it does not know, and the status", func(ctx SpecContext) {
		w := newWritingOf(ctx, client.Options{})
		blinds := client.For[*Blind](w.Client)
		set := func(height, position int, want client.Result, o ...client.Option) *Blind {
			GinkgoHelper()
			b, is, err := client.CreateOrPatch(w.ctx, blinds, w.blind(), func(b *Blind) error {
				b.Spec.Height, b.Status.Position = height, position
				return nil
			}, o...)
			Expect(err).NotTo(HaveOccurred())
			Expect(is).To(Equal(want))
			Expect([]int{b.Spec.Height, b.Status.Position}).To(Equal([]int{height, position}))
			return b
		}
		set(2, 50, client.Created)
		Expect(written(w)).To(Equal(2), "a create ignores the status")
		w.paint()
		set(2, 50, client.Unchanged)
		Expect(written(w)).To(Equal(4))
		set(3, 50, client.Updated)
		Expect(written(w)).To(Equal(5))
		set(3, 60, client.Updated)
		Expect(w.ledger.Writes()[5].Subresource).To(Equal("status"))
		set(4, 70, client.Updated, client.OptimisticLock())
		Expect(written(w)).To(Equal(8))
		Expect(w.raw()).To(HaveKeyWithValue("spec", map[string]any{"height": int64(4), "color": "red"}))
		Expect(w.raw()).To(HaveKeyWithValue("status", map[string]any{"position": int64(70), "note": "dry"}))

		By("an update, which drops it")
		_, _, err := client.CreateOrUpdate(w.ctx, blinds, w.blind(), func(b *Blind) error { b.Spec.Height = 5; return nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(w.raw()).To(HaveKeyWithValue("spec", map[string]any{"height": int64(5)}))
	}, NodeTimeout(patience))

	It("patches the status of a kind without a status subresource", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		h := client.ForKind[*unstructured.Unstructured](w.Client, lampKind)
		l := must(h.Create(w.ctx, func() *unstructured.Unstructured { l := lamp("l", int64(1)); l.SetNamespace(w.namespace); return l }()))
		after := l.DeepCopy()
		after.Object["watts"] = map[string]any{"status": "high"}
		Expect(must(client.PatchFrom(w.ctx, h, l, after)).Object["watts"]).To(Equal(map[string]any{"status": "high"}))
		after.Object["status"] = map[string]any{"a": "b"}
		stored := must(client.PatchFrom(w.ctx, h, l, after))
		Expect(stored.Object).NotTo(HaveKey("status"), "the schema prunes it")
		Expect(w.ledger.Requests()).To(ContainElement(And(HaveField("Subresource", "status"), HaveField("Status", 404))))
	}, NodeTimeout(patience))

	It("patches with an optimistic lock", func(ctx SpecContext) {
		w := newWritingOf(ctx, client.Options{})
		blinds := client.For[*Blind](w.Client)
		old := must(blinds.Create(w.ctx, w.blind()))
		w.paint()
		after := old.DeepCopyObject().(*Blind)
		after.Spec.Height = 7
		_, err := client.PatchFrom(w.ctx, blinds, old, after, client.OptimisticLock())
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		must(client.PatchFrom(w.ctx, blinds, old, after))
		Expect(w.raw()).To(HaveKeyWithValue("spec", map[string]any{"height": int64(7), "color": "red"}))

		By("a lock that CreateOrPatch renews")
		var seen []string
		_, _, err = client.CreateOrPatch(w.ctx, blinds, old, func(b *Blind) error {
			seen = append(seen, b.ResourceVersion)
			b.Spec.Height = 8
			return nil
		}, client.OptimisticLock())
		Expect(err).NotTo(HaveOccurred())
		Expect(seen).To(HaveLen(2))
		Expect(seen[0]).To(Equal(old.ResourceVersion))

		By("another object of the same name")
		Expect(blinds.Delete(w.ctx, w.key("b"))).To(Succeed())
		must(blinds.Create(w.ctx, w.blind()))
		_, err = client.PatchFrom(w.ctx, blinds, old, after)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(blinds.Delete(w.ctx, w.key("b"))).To(Succeed())
		_, err = client.PatchFrom(w.ctx, blinds, old, after)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		deployments := client.For[*appsv1.Deployment](w.Client)
		first := must(deployments.Apply(w.ctx, w.web("a")))
		Expect(deployments.Delete(w.ctx, w.key("web"))).To(Succeed())
		must(deployments.Apply(w.ctx, w.web("a")))
		for _, change := range []func(*appsv1.Deployment){
			func(d *appsv1.Deployment) { d.Labels = nil }, func(d *appsv1.Deployment) { d.Status.Replicas = 1 },
		} {
			second := first.DeepCopy()
			change(second)
			_, err := client.PatchFrom(w.ctx, deployments, first, second)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("the object was deleted and created again")))
		}
	}, NodeTimeout(patience))

	It("merges lists of built-in kinds, and says conflict for others", func(ctx SpecContext) {
		w := newWritingOf(ctx, client.Options{})
		deployments := client.For[*appsv1.Deployment](w.Client)
		old := must(deployments.Apply(w.ctx, w.web("a")))
		container := func(name string) string {
			return fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":"s"}]}}}}`, name)
		}
		must(deployments.Patch(w.ctx, w.key("web"), types.StrategicMergePatchType, []byte(container("sidecar"))))
		after := old.DeepCopy()
		after.Spec.Template.Spec.Containers[0].Image = "b"
		after.Finalizers = []string{"example.com/mine"}
		after.Annotations = map[string]string{"a": "b"}
		after.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Mine", Status: corev1.ConditionTrue}}
		must(deployments.EnsureFinalizer(w.ctx, must(deployments.GetLive(w.ctx, w.key("web"))), "example.com/theirs"))
		must(deployments.PatchStatus(w.ctx, w.key("web"), types.StrategicMergePatchType, []byte(`{"status":{"conditions":[{"type":"Theirs","status":"True"}]}}`)))
		d := must(client.PatchFrom(w.ctx, deployments, old, after))
		images := map[string]string{}
		for _, c := range d.Spec.Template.Spec.Containers {
			images[c.Name] = c.Image
		}
		Expect(images).To(Equal(map[string]string{"web": "b", "sidecar": "s"}))
		Expect(d.Finalizers).To(ConsistOf("example.com/mine", "example.com/theirs"))
		Expect(d.Status.Conditions).To(ConsistOf(HaveField("Type", BeEquivalentTo("Mine")), HaveField("Type", BeEquivalentTo("Theirs"))))

		By("two elements with the same key")
		services := client.For[*corev1.Service](w.Client)
		dns := &corev1.Service{ObjectMeta: w.configMap("dns").ObjectMeta}
		dns.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Port: 53, Protocol: corev1.ProtocolTCP}}
		dns = must(services.Create(w.ctx, dns))
		both := dns.DeepCopy()
		both.Spec.Ports = append(both.Spec.Ports, corev1.ServicePort{Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP})
		Expect(must(client.PatchFrom(w.ctx, services, dns, both)).Spec.Ports).To(ConsistOf(HaveField("Name", "tcp"), HaveField("Name", "udp")))

		By("metadata, as a JSON merge patch")
		metadata := client.ForKind[*metav1.PartialObjectMetadata](w.Client, appsv1.SchemeGroupVersion.WithKind("Deployment"))
		m := must(metadata.GetLive(w.ctx, w.key("web")))
		bare := m.DeepCopy()
		bare.Finalizers, bare.Annotations = nil, nil
		m = must(client.PatchFrom(w.ctx, metadata, m, bare))
		Expect(m.Finalizers).To(BeEmpty())
		Expect(m.Annotations).To(BeEmpty())

		By("a custom kind")
		blinds := client.For[*Blind](w.Client)
		b := w.blind()
		b.Spec.Slats = []string{"a"}
		before := must(blinds.Create(w.ctx, b))
		must(blinds.Patch(w.ctx, w.key("b"), types.MergePatchType, []byte(`{"spec":{"slats":["a","b"]}}`)))
		changed := before.DeepCopyObject().(*Blind)
		changed.Spec.Slats = append(changed.Spec.Slats, "c")
		_, err := client.PatchFrom(w.ctx, blinds, before, changed)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err) // "b" would be lost
	}, NodeTimeout(patience))
})
