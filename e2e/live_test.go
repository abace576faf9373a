// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/ledger"
)

var _ = Describe("deleting all", func() {
	It("deletes the selected objects, in pages", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		maps := client.For[*corev1.ConfigMap](w.Client)
		mine := labels.SelectorFromSet(labels.Set{"mine": "yes"})
		for n := range 7 {
			must(maps.Apply(w.ctx, coreac.ConfigMap(fmt.Sprint("n", n), w.namespace).WithLabels(map[string]string{"mine": "yes"})))
		}
		must(maps.Apply(w.ctx, coreac.ConfigMap("other", w.namespace)))
		held := must(maps.GetLive(w.ctx, w.key("n3")))
		must(maps.EnsureFinalizer(w.ctx, held, "example.com/a"))
		o := client.ListOptions{Namespace: w.namespace, Labels: mine}
		before := written(w)
		Expect(maps.DeleteAll(w.ctx, o, client.DryRun())).To(Succeed())
		Expect(must(client.Collect(maps.ListLive(w.ctx, o)))).To(HaveLen(7))
		Expect(written(w)).To(Equal(before))
		o.PageSize = 3
		Expect(maps.DeleteAll(w.ctx, o, client.Propagation(metav1.DeletePropagationBackground), client.GracePeriod(0))).To(Succeed())
		Expect(w.sent("deletecollection", "configmaps")).To(Equal(1 + 3))
		left := must(client.Collect(maps.ListLive(w.ctx, o)))
		Expect(names(left)).To(Equal([]string{"n3"}))
		Expect(left[0].DeletionTimestamp).NotTo(BeNil())
		Expect(must(maps.GetLive(w.ctx, w.key("other"))).Name).To(Equal("other"))

		By("what the ledger has")
		var deleted []string
		for _, write := range w.ledger.Writes()[before:] {
			Expect([]any{write.Verb, write.Effect, write.Namespace}).To(Equal([]any{"deletecollection", ledger.Accepted, w.namespace}))
			Expect(write.UID).NotTo(BeEmpty())
			deleted = append(deleted, write.Name)
		}
		Expect(deleted).To(ConsistOf("n0", "n1", "n2", "n3", "n4", "n5", "n6"))

		By("custom and cluster-scoped kinds")
		typed, untyped := client.For[*Lamp](w.Client), client.ForKind[*unstructured.Unstructured](w.Client, lampKind)
		for n := range 4 {
			must(typed.Create(w.ctx, &Lamp{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprint("l", n)}}))
		}
		Expect(untyped.DeleteAll(w.ctx, client.ListOptions{Namespace: w.namespace, PageSize: 3})).To(Succeed())
		Expect(must(client.Collect(typed.ListLive(w.ctx, client.ListOptions{Namespace: w.namespace})))).To(BeEmpty())
		roles := client.For[*rbacv1.ClusterRole](w.Client)
		must(roles.Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace, Labels: map[string]string{"of": w.namespace}}}))
		Expect(roles.DeleteAll(w.ctx, client.ListOptions{Labels: labels.SelectorFromSet(labels.Set{"of": w.namespace})})).To(Succeed())
		_, err := roles.GetLive(w.ctx, types.NamespacedName{Name: w.namespace})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)

		By("mistakes")
		Expect(roles.DeleteAll(w.ctx, client.ListOptions{})).To(MatchError(ContainSubstring("delete all ClusterRole: nothing is selected")))
		Expect(maps.DeleteAll(w.ctx, client.ListOptions{Labels: mine})).To(MatchError(ContainSubstring("ConfigMap is a namespaced kind: name the namespace")))
	}, NodeTimeout(patience))

	It("records more objects than fit into one response", func(ctx SpecContext) {
		w := newWriting(ctx)
		maps := client.For[*corev1.ConfigMap](w.Client)
		const many = 450
		data := map[string]string{"a": string(make([]byte, 8000))}
		for n := range many {
			m := w.configMap(fmt.Sprint("n", n))
			m.BinaryData = map[string][]byte{"a": []byte(data["a"])}
			m.Labels = map[string]string{"mine": "yes"}
			must(maps.Create(ctx, m))
		}
		Expect(maps.DeleteAll(w.ctx, client.ListOptions{Namespace: w.namespace, Labels: labels.SelectorFromSet(labels.Set{"mine": "yes"})})).To(Succeed())
		Expect(w.sent("deletecollection", "configmaps")).To(Equal(3))
		Expect(w.ledger.Writes()).To(HaveLen(many))
	}, NodeTimeout(patience))
})

type seen struct {
	kind watch.EventType
	name string
}

var _ = Describe("a live watch", func() {
	for _, form := range []string{"typed", "unstructured", "metadata"} {
		It("yields the objects and then the changes, "+form, func(ctx SpecContext) {
			w := newWriting(ctx)
			switch kind := corev1.SchemeGroupVersion.WithKind("ConfigMap"); form {
			case "typed":
				watches(w, client.For[*corev1.ConfigMap](w.Client))
			case "unstructured":
				watches(w, client.ForKind[*unstructured.Unstructured](w.Client, kind))
			default:
				watches(w, client.ForKind[*metav1.PartialObjectMetadata](w.Client, kind))
			}
		}, NodeTimeout(patience))
	}

	It("resumes after a broken connection, and ends with its context", func(ctx SpecContext) {
		w := newWorld(ctx, cluster.Config())
		maps := client.For[*corev1.ConfigMap](w.client)
		create := func(name string) {
			GinkgoHelper()
			must(w.direct.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
		}
		ended := errors.New("seen enough")
		running, cancel := context.WithCancelCause(w.ctx)
		watching := fault.Match{Verbs: []string{"watch"}}
		defer cancel(nil)
		var got []string
		var last error
		for event, err := range maps.WatchLive(running, client.ListOptions{Namespace: w.namespace}) {
			if last = err; err != nil {
				break
			}
			switch {
			case event.Type == watch.Bookmark:
				create("a")
			case event.Object.Name == "a":
				got = append(got, "a")
				w.proxy.Cut(watching)
				create("b")
			case event.Object.Name == "b":
				got = append(got, "b")
				cancel(ended)
			}
		}
		Expect(got).To(Equal([]string{"a", "b"}))
		Expect(last).To(MatchError(ended))

		By("a request that fails")
		for _, err := range maps.WatchLive(w.ctx, client.ListOptions{Namespace: w.namespace}) {
			if last = err; err == nil {
				w.proxy.Add(fault.Rule{Match: watching, Refuse: apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))})
				w.proxy.Cut(watching)
			}
		}
		Expect(apierrors.IsForbidden(last)).To(BeTrue(), "%v", last)
	}, NodeTimeout(patience))
})

func watches[T client.Object](w *writing, h *client.Handle[T]) {
	GinkgoHelper()
	maps := client.For[*corev1.ConfigMap](w.Client)
	mine := func(name string) *coreac.ConfigMapApplyConfiguration {
		return coreac.ConfigMap(name, w.namespace).WithLabels(map[string]string{"mine": "yes"})
	}
	for _, name := range []string{"a", "b", "c"} {
		must(maps.Apply(w.ctx, mine(name)))
	}
	var got []seen
	o := client.ListOptions{Namespace: w.namespace, Labels: labels.SelectorFromSet(labels.Set{"mine": "yes"}), PageSize: 2}
	for event, err := range h.WatchLive(w.ctx, o) {
		Expect(err).NotTo(HaveOccurred())
		got = append(got, seen{event.Type, event.Object.GetName()})
		Expect(event.Object.GetResourceVersion()).NotTo(BeEmpty())
		if event.Type == watch.Bookmark {
			must(maps.Apply(w.ctx, mine("a").WithData(map[string]string{"x": "y"})))
			must(maps.Apply(w.ctx, coreac.ConfigMap("other", w.namespace)))
			must(maps.Apply(w.ctx, mine("d")))
			Expect(maps.Delete(w.ctx, w.key("b"))).To(Succeed())
		}
		if event.Type == watch.Deleted {
			Expect(event.Object.GetLabels()).To(HaveKeyWithValue("mine", "yes"))
			break
		}
	}
	Expect(got).To(Equal([]seen{
		{watch.Added, "a"}, {watch.Added, "b"}, {watch.Added, "c"}, {watch.Bookmark, ""},
		{watch.Modified, "a"}, {watch.Added, "d"}, {watch.Deleted, "b"},
	}))
}

var _ = Describe("a careful write", func() {
	It("does not force an apply, and names fields and owners", func(ctx SpecContext) {
		w := newWriting(ctx)
		deployments := client.For[*appsv1.Deployment](w.Client)
		must(deployments.Apply(w.ctx, w.web("a"), client.FieldOwner("shop")))
		scaled := appsac.Deployment("web", w.namespace).WithSpec(appsac.DeploymentSpec().WithReplicas(3))
		must(deployments.Apply(w.ctx, scaled, client.FieldOwner("autoscaler")))
		must(deployments.Apply(w.ctx, w.web("a"), client.NoForce()))
		mine := w.web("b")
		mine.Spec.WithReplicas(1)
		_, err := deployments.Apply(w.ctx, mine, client.NoForce())
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		var conflict *client.FieldConflictError
		Expect(errors.As(err, &conflict)).To(BeTrue())
		Expect(conflict.Conflicts).To(ConsistOf(
			client.FieldConflict{Field: ".spec.replicas", Owner: `"autoscaler"`},
			client.FieldConflict{Field: `.spec.template.spec.containers[name="web"].image`, Owner: `"shop"`},
		))
		Expect(err).To(MatchError(And(
			HavePrefix("apply Deployment "+w.namespace+"/web: other field owners have set "),
			ContainSubstring(`.spec.replicas ("autoscaler")`),
			HaveSuffix("; leave these fields out of the configuration, or apply without client.NoForce to take them over"),
		)))
		GinkgoWriter.Println(err)
		live := must(deployments.GetLive(w.ctx, w.key("web")))
		Expect(*live.Spec.Replicas).To(BeEquivalentTo(3))
		status := func(n int32) *appsac.DeploymentApplyConfiguration {
			return appsac.Deployment("web", w.namespace).WithStatus(appsac.DeploymentStatus().WithReplicas(n))
		}
		must(deployments.ApplyStatus(w.ctx, status(1), client.FieldOwner("kubelet")))
		_, err = deployments.ApplyStatus(w.ctx, status(2), client.NoForce())
		Expect(err).To(MatchError(ContainSubstring(`apply the status of Deployment ` + w.namespace + `/web: other field owners have set .status.replicas ("kubelet" with subresource "status")`)))
		live.Spec.Paused = true
		must(deployments.Update(w.ctx, must(deployments.GetLive(w.ctx, w.key("web"))), client.FieldOwner("hand")))
		must(deployments.Apply(w.ctx, mine))
	}, NodeTimeout(patience))

	It("refuses unknown fields in strict mode", func(ctx SpecContext) {
		strict := client.FieldValidation(metav1.FieldValidationStrict)
		w := newWritingOf(ctx, client.Options{})
		blinds := client.For[*Blind](w.Client)
		must(blinds.Create(w.ctx, w.blind()))
		patch := []byte(`{"spec":{"heigth":1}}`)
		refused := func(err error) {
			GinkgoHelper()
			Expect(apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(`unknown field "spec.heigth"`)))
		}
		_, err := blinds.Patch(w.ctx, w.key("b"), types.MergePatchType, patch, strict)
		refused(err)
		untyped := client.ForKind[*unstructured.Unstructured](w.Client, lamps.GroupVersion().WithKind("Blind"))
		u := must(untyped.GetLive(w.ctx, w.key("b")))
		u.Object["spec"] = map[string]any{"heigth": int64(1)}
		refused(second(untyped.Update(w.ctx, u, strict)))
		configuration := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": u.GetAPIVersion(), "kind": "Blind", "spec": u.Object["spec"],
			"metadata": map[string]any{"namespace": w.namespace, "name": "b"},
		}}
		Expect(second(untyped.Apply(w.ctx, client.UnstructuredConfiguration(configuration)))).To(MatchError(ContainSubstring(".spec.heigth: field not declared in schema")))
		must(untyped.Update(w.ctx, u)) // with a warning
		must(untyped.Update(w.ctx, u, client.FieldValidation(metav1.FieldValidationIgnore)))
		for _, kind := range []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("ConfigMap")} {
			built := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": w.namespace, "name": "x"}, "dta": "y"}}
			_, err := client.ForKind[*unstructured.Unstructured](w.Client, kind).Create(w.ctx, built, strict)
			Expect(err).To(MatchError(ContainSubstring(`unknown field "dta"`)))
		}

		By("a strict client")
		all := newWritingOf(ctx, client.Options{FieldValidation: metav1.FieldValidationStrict})
		_, err = client.For[*Blind](all.Client).Patch(w.ctx, w.key("b"), types.MergePatchType, patch)
		refused(err)
		must(client.For[*Blind](all.Client).Patch(w.ctx, w.key("b"), types.MergePatchType, patch, client.FieldValidation(metav1.FieldValidationIgnore)))
	}, NodeTimeout(patience))

	It("stores nothing with a client for dry runs", func(ctx SpecContext) {
		w := newWritingOf(ctx, client.Options{})
		dry := newWritingOf(ctx, client.Options{DryRun: true})
		maps := client.For[*corev1.ConfigMap](dry.Client)
		m := must(client.For[*corev1.ConfigMap](w.Client).Create(w.ctx, w.configMap("m")))
		must(maps.Create(dry.ctx, dry.configMap("new")))
		fill := func(m *corev1.ConfigMap) error { m.Data = map[string]string{"a": "b"}; return nil }
		for _, write := range []func(context.Context, client.ReadWriter[*corev1.ConfigMap], *corev1.ConfigMap, func(*corev1.ConfigMap) error, ...client.Option) (*corev1.ConfigMap, client.Result, error){
			client.CreateOrUpdate[*corev1.ConfigMap], client.CreateOrPatch[*corev1.ConfigMap],
		} {
			_, is, err := write(dry.ctx, maps, m, fill)
			Expect([]any{is, err}).To(Equal([]any{client.Updated, nil}))
			_, is, err = write(dry.ctx, maps, dry.configMap("new"), fill)
			Expect([]any{is, err}).To(Equal([]any{client.Created, nil}))
		}
		must(maps.Apply(dry.ctx, coreac.ConfigMap("m", w.namespace).WithData(map[string]string{"c": "d"})))
		must(maps.EnsureFinalizer(dry.ctx, m, "example.com/a"))
		Expect(maps.Delete(dry.ctx, w.key("m"))).To(Succeed())
		Expect(maps.DeleteAll(dry.ctx, client.ListOptions{Namespace: w.namespace})).To(Succeed())
		blinds := client.For[*Blind](dry.Client)
		_, is, err := client.CreateOrPatch(dry.ctx, blinds, dry.blind(), func(b *Blind) error { b.Status.Position = 1; return nil })
		Expect([]any{is, err}).To(Equal([]any{client.Created, nil}))
		Expect(must(maps.GetLive(w.ctx, w.key("m")))).To(Equal(m))
		Expect(dry.ledger.Writes()).To(BeEmpty())
	}, NodeTimeout(patience))

	It("maps kinds and resources, also those of a later CRD", func(ctx SpecContext) {
		w := newWriting(ctx)
		mapper := w.RESTMapper()
		m := must(mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"}))
		Expect(m.Resource).To(Equal(appsv1.SchemeGroupVersion.WithResource("deployments")))
		Expect(must(mapper.ResourceFor(schema.GroupVersionResource{Resource: "configmaps"}))).To(Equal(corev1.SchemeGroupVersion.WithResource("configmaps")))
		_, err := mapper.RESTMapping(schema.GroupKind{Group: "later.setpoint.dev", Kind: "Later"})
		Expect(meta.IsNoMatchError(err)).To(BeTrue(), "%v", err)
		Expect(cluster.InstallCRDs(ctx, "testdata/later.yaml")).To(Succeed())
		m = must(mapper.RESTMapping(schema.GroupKind{Group: "later.setpoint.dev", Kind: "Later"}, "v1"))
		Expect(m.Resource.Resource).To(Equal("laters"))
		Expect(m.Scope.Name()).To(Equal(meta.RESTScopeNameRoot))
		served := must(w.Discovery().ServerVersion())
		Expect(served.Major).To(Equal("1"))
	}, NodeTimeout(patience))
})
