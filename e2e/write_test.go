// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingac "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
)

// writing is a client with its own namespace, and a ledger that counts requests.
type writing struct {
	*client.Client
	ctx       context.Context //nolint:containedctx // of one spec
	ledger    *journal.Journal
	namespace string
}

func newWriting(ctx context.Context) *writing {
	GinkgoHelper()
	w := &writing{ledger: journal.New(journal.Origin{Controller: "writing"})}
	var err error
	w.Client, err = client.New(cluster.Config(), client.Options{Scheme: newScheme(), FieldOwner: "writing"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Close)
	w.namespace, err = cluster.Namespace(ctx, "write-")
	Expect(err).NotTo(HaveOccurred())
	w.ctx = journal.With(ctx, w.ledger)
	return w
}

func (w *writing) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

// sent returns the number of requests with a verb for a resource so far.
func (w *writing) sent(verb, resource string) int {
	n := 0
	for _, r := range w.ledger.Requests() {
		if r.Verb == verb && r.Resource == resource {
			n++
		}
	}
	return n
}

// web is a Deployment with many fields left to the API server's defaults.
func (w *writing) web(image string) *appsac.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	return appsac.Deployment("web", w.namespace).WithLabels(labels).WithSpec(appsac.DeploymentSpec().
		WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
			WithContainers(coreac.Container().WithName("web").WithImage(image).WithPorts(coreac.ContainerPort().WithContainerPort(80))))))
}

func must[T any](v T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return v
}

var lampKind = lamps.GroupVersion().WithKind("Lamp")

var _ = Describe("writing", func() {
	It("applies only changes", func(ctx SpecContext) {
		w := newWriting(ctx)
		deployments := client.For[*appsv1.Deployment](w.Client)
		apply := func(image string, live client.Object) *appsv1.Deployment {
			GinkgoHelper()
			return must(deployments.Apply(w.ctx, w.web(image), client.UnlessAlready(live)))
		}
		live := func() *appsv1.Deployment { return must(deployments.GetLive(w.ctx, w.key("web"))) }
		sends := func(image string, live client.Object) int {
			GinkgoHelper()
			before := w.sent("patch", "deployments")
			apply(image, live)
			return w.sent("patch", "deployments") - before
		}
		apply("a", nil)
		Expect(sends("a", live())).To(BeZero(), "what the API server has filled in is no change")

		By("somebody else's changes")
		scaled := appsac.Deployment("web", w.namespace).WithSpec(appsac.DeploymentSpec().WithReplicas(3))
		must(deployments.Apply(w.ctx, scaled, client.FieldOwner("autoscaler")))
		Expect(sends("a", live())).To(Equal(1))
		Expect(sends("a", live())).To(BeZero())
		Expect(*live().Spec.Replicas).To(BeEquivalentTo(3), "we never said how many")
		theirs := w.web("stolen")
		must(deployments.Apply(w.ctx, theirs, client.FieldOwner("thief")))
		Expect(sends("a", live())).To(Equal(1))
		Expect(live().Spec.Template.Spec.Containers[0].Image).To(Equal("a"), "a conflict is forced")
		Expect(sends("a", live())).To(BeZero())

		By("the status, which does not count")
		status := appsac.Deployment("web", w.namespace).WithStatus(appsac.DeploymentStatus().WithReplicas(3))
		must(deployments.ApplyStatus(w.ctx, status))
		Expect(sends("a", live())).To(BeZero())

		By("a change of ours")
		Expect(sends("b", live())).To(Equal(1))
		Expect(sends("b", live())).To(BeZero())
		Expect(sends("a", live())).To(Equal(1))

		By("a new one of the same name")
		old := live()
		Expect(deployments.Delete(w.ctx, w.key("web"))).To(Succeed())
		Expect(sends("a", old)).To(BeZero(), "a cache that does not show it yet will")
		Expect(sends("a", nil)).To(Equal(1))
		Expect(sends("a", old)).To(BeZero(), "still the one before")
		Expect(sends("a", live())).To(BeZero())
		Expect(live().UID).NotTo(Equal(old.UID))

		By("a service, which is given an address")
		services := client.For[*corev1.Service](w.Client)
		service := coreac.Service("web", w.namespace).WithSpec(coreac.ServiceSpec().WithPorts(coreac.ServicePort().WithPort(80)))
		s := must(services.Apply(w.ctx, service, client.UnlessAlready(nil)))
		Expect(s.Spec.ClusterIP).NotTo(BeEmpty())
		before := w.sent("patch", "services")
		must(services.Apply(w.ctx, service, client.UnlessAlready(must(services.GetLive(w.ctx, w.key("web"))))))
		Expect(w.sent("patch", "services")).To(Equal(before))
	}, NodeTimeout(patience))

	It("compares with an informer's store", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		c := cache.New(w.Client, cache.Options{})
		deployments := cache.ForScope[*appsv1.Deployment](c, cache.Scope{Namespaces: cache.NewSet(w.namespace)})
		typed := cache.ForScope[*Lamp](c, cache.Scope{Namespaces: cache.NewSet(w.namespace)})
		untyped := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: lampKind, Namespaces: cache.NewSet(w.namespace)})
		lamp := lamp("l", int64(7))
		lamp.SetNamespace(w.namespace)
		lamp.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: "{}"})
		must(client.For[*appsv1.Deployment](w.Client).Apply(w.ctx, w.web("a"), client.UnlessAlready(nil)))
		must(client.For[*Lamp](w.Client).Apply(w.ctx, client.UnstructuredConfiguration(lamp), client.UnlessAlready(nil)))
		must(client.ForKind[*unstructured.Unstructured](w.Client, lampKind).Apply(w.ctx, client.UnstructuredConfiguration(lamp), client.UnlessAlready(nil), client.FieldOwner("other")))
		running, stop := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { defer GinkgoRecover(); Expect(c.Run(running)).To(Succeed()) })
		DeferCleanup(func() { stop(); done.Wait() })
		before := w.sent("patch", "deployments") + w.sent("patch", "lamps")
		must(client.For[*appsv1.Deployment](w.Client).Apply(w.ctx, w.web("a"), client.UnlessAlready(must(deployments.Get(ctx, w.key("web"))))))
		must(client.For[*Lamp](w.Client).Apply(w.ctx, client.UnstructuredConfiguration(lamp), client.UnlessAlready(must(typed.Get(ctx, w.key("l"))))))
		must(client.ForKind[*unstructured.Unstructured](w.Client, lampKind).
			Apply(w.ctx, client.UnstructuredConfiguration(lamp), client.UnlessAlready(must(untyped.Get(ctx, w.key("l")))), client.FieldOwner("other")))
		Expect(w.sent("patch", "deployments") + w.sent("patch", "lamps")).To(Equal(before))
	}, NodeTimeout(patience))

	It("stores nothing in a dry run", func(ctx SpecContext) {
		w := newWriting(ctx)
		maps := client.For[*corev1.ConfigMap](w.Client)
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "m"}}
		Expect(must(maps.Create(w.ctx, m, client.DryRun())).UID).NotTo(BeEmpty())
		_, err := maps.GetLive(w.ctx, w.key("m"))
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		m = must(maps.Create(w.ctx, m))
		changed := m.DeepCopy()
		changed.Data = map[string]string{"a": "b"}
		Expect(must(maps.Update(w.ctx, changed, client.DryRun())).Data).To(HaveLen(1))
		Expect(must(maps.Patch(w.ctx, w.key("m"), types.MergePatchType, []byte(`{"data":{"a":"b"}}`), client.DryRun())).Data).To(HaveLen(1))
		Expect(must(maps.Apply(w.ctx, coreac.ConfigMap("m", w.namespace).WithData(changed.Data), client.DryRun())).Data).To(HaveLen(1))
		Expect(must(maps.EnsureFinalizer(w.ctx, m, "example.com/a", client.DryRun())).Finalizers).To(HaveLen(1))
		Expect(maps.Delete(w.ctx, w.key("m"), client.DryRun())).To(Succeed())
		Expect(must(maps.GetLive(w.ctx, w.key("m"))).ResourceVersion).To(Equal(m.ResourceVersion))
		Expect(w.ledger.Writes()).To(HaveLen(1))
	}, NodeTimeout(patience))

	It("lists live, page by page", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		maps, typed := client.For[*corev1.ConfigMap](w.Client), client.For[*Lamp](w.Client)
		untyped := client.ForKind[*unstructured.Unstructured](w.Client, lampKind)
		for n := range 7 {
			name := fmt.Sprint("n", n)
			must(maps.Apply(w.ctx, coreac.ConfigMap(name, w.namespace).WithLabels(map[string]string{"mine": "yes"})))
			l := &Lamp{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"mine": "yes"}}, Watts: n}
			must(typed.Create(w.ctx, l))
		}
		o := client.ListOptions{Namespace: w.namespace, PageSize: 2, Labels: labels.SelectorFromSet(labels.Set{"mine": "yes"})}
		want := []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6"}
		Expect(names(must(client.Collect(maps.ListLive(w.ctx, o))))).To(Equal(want))
		Expect(w.sent("list", "configmaps")).To(Equal(4))
		all := must(client.Collect(typed.ListLive(w.ctx, o)))
		Expect(names(all)).To(Equal(want))
		Expect(all[6].Watts).To(Equal(6))
		Expect(names(must(client.Collect(untyped.ListLive(w.ctx, o))))).To(Equal(want))
		Expect(names(must(client.Collect(client.ForKind[*metav1.PartialObjectMetadata](w.Client, lampKind).ListLive(w.ctx, o))))).To(Equal(want))
		Expect(w.sent("list", "lamps")).To(Equal(12))
		// Of all namespaces.
		for _, err := range untyped.ListLive(w.ctx, client.ListOptions{PageSize: 2}) {
			Expect(err).NotTo(HaveOccurred())
			break
		}
		Expect(w.sent("list", "lamps")).To(Equal(13))
	}, NodeTimeout(patience))

	It("adds and removes finalizers concurrently with other clients", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		h := client.For[*Lamp](w.Client)
		old := must(h.Create(w.ctx, &Lamp{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "l"}}))
		var all sync.WaitGroup
		for _, f := range []string{"example.com/a", "example.com/b", "example.com/c"} {
			all.Go(func() {
				defer GinkgoRecover()
				must(h.EnsureFinalizer(w.ctx, old, f))
			})
		}
		all.Wait()
		l := must(h.GetLive(w.ctx, w.key("l")))
		Expect(l.Finalizers).To(ConsistOf("example.com/a", "example.com/b", "example.com/c"))
		must(client.ForKind[*metav1.PartialObjectMetadata](w.Client, lampKind).EnsureFinalizer(w.ctx, must(client.ForKind[*metav1.PartialObjectMetadata](w.Client, lampKind).GetLive(w.ctx, w.key("l"))), "example.com/d"))
		Expect(h.Delete(w.ctx, w.key("l"), client.Preconditions(l.UID, ""))).To(Succeed())
		_, err := h.EnsureFinalizer(w.ctx, l, "example.com/e")
		Expect(err).To(MatchError(ContainSubstring("being deleted")))
		for _, f := range []string{"example.com/a", "example.com/b", "example.com/c", "example.com/d"} {
			all.Go(func() {
				defer GinkgoRecover()
				stale := l.DeepCopyObject().(*Lamp)
				stale.Finalizers = append(stale.Finalizers, "example.com/d")
				must(h.RemoveFinalizer(w.ctx, stale, f))
			})
		}
		all.Wait()
		_, err = h.GetLive(w.ctx, w.key("l"))
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		must(h.RemoveFinalizer(w.ctx, l, "example.com/a"))
	}, NodeTimeout(patience))

	It("prunes objects that their owner no longer wants", func(ctx SpecContext) {
		w := newWriting(ctx)
		maps := client.For[*corev1.ConfigMap](w.Client)
		owner := must(maps.Apply(w.ctx, coreac.ConfigMap("owner", w.namespace)))
		ref := cache.For[*corev1.ConfigMap](cache.New(w.Client, cache.Options{})).OwnerRef(owner)
		for _, name := range []string{"a", "b", "c"} {
			must(maps.Apply(w.ctx, coreac.ConfigMap(name, w.namespace).WithOwnerReferences(ref)))
		}
		list := must(client.Collect(maps.ListLive(w.ctx, client.ListOptions{Namespace: w.namespace})))
		Expect(maps.Delete(w.ctx, w.key("c"))).To(Succeed())
		must(maps.Apply(w.ctx, coreac.ConfigMap("c", w.namespace).WithOwnerReferences(ref)))
		keep := func(m *corev1.ConfigMap) bool { return m.Name == "a" }
		Expect(names(must(maps.Prune(w.ctx, owner, list, keep, client.DryRun())))).To(Equal([]string{"b"}))
		Expect(names(must(maps.Prune(w.ctx, owner, list, keep)))).To(Equal([]string{"b"}))
		left := names(must(client.Collect(maps.ListLive(w.ctx, client.ListOptions{Namespace: w.namespace}))))
		Expect(left).To(ContainElements("a", "c", "owner"), "c is another one than was listed")
		Expect(left).NotTo(ContainElement("b"))
	}, NodeTimeout(patience))

	It("reads and writes subresources", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		deployments := client.For[*appsv1.Deployment](w.Client)
		must(deployments.Apply(w.ctx, w.web("a")))
		scales := client.SubresourceOf[*autoscalingv1.Scale](deployments, "scale")
		s := must(scales.Get(w.ctx, w.key("web")))
		Expect(s.Spec.Replicas).To(BeEquivalentTo(1))
		s.Spec.Replicas = 2
		Expect(must(scales.Update(w.ctx, s)).Spec.Replicas).To(BeEquivalentTo(2))
		Expect(must(scales.Patch(w.ctx, w.key("web"), types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), client.DryRun())).Spec.Replicas).To(BeEquivalentTo(3))
		Expect(must(scales.Get(w.ctx, w.key("web"))).Spec.Replicas).To(BeEquivalentTo(2))
		must(scales.Apply(w.ctx, autoscalingac.Scale().WithName("web").WithNamespace(w.namespace).WithSpec(autoscalingac.ScaleSpec().WithReplicas(0))))
		Expect(*must(deployments.GetLive(w.ctx, w.key("web"))).Spec.Replicas).To(BeZero())

		pods := client.For[*corev1.Pod](w.Client)
		must(pods.Create(w.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}))
		evictions := client.SubresourceOf[*policyv1.Eviction](pods, "eviction")
		must(evictions.Create(w.ctx, w.key("p"), &policyv1.Eviction{}, client.DryRun()))
		must(pods.GetLive(w.ctx, w.key("p")))
		must(evictions.Create(w.ctx, w.key("p"), &policyv1.Eviction{}))
		_, err := pods.GetLive(w.ctx, w.key("p"))
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "it has no node that would have to stop it first: %v", err)
		_, err = evictions.Create(w.ctx, w.key("p"), &policyv1.Eviction{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)

		accounts := client.For[*corev1.ServiceAccount](w.Client)
		must(accounts.Apply(w.ctx, coreac.ServiceAccount("s", w.namespace)))
		token := must(client.SubresourceOf[*authenticationv1.TokenRequest](accounts, "token").Create(w.ctx, w.key("s"), &authenticationv1.TokenRequest{}))
		Expect(token.Status.Token).NotTo(BeEmpty())

		_, err = client.SubresourceOf[*autoscalingv1.Scale](client.For[*Lamp](w.Client), "scale").Get(w.ctx, w.key("l"))
		Expect(err).To(MatchError(ContainSubstring("does not serve the scale of Lamp")))
	}, NodeTimeout(patience))

	It("distinguishes a kind without a status from a missing object", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		h, untyped := client.For[*Lamp](w.Client), client.ForKind[*unstructured.Unstructured](w.Client, lampKind)
		l := must(h.Create(w.ctx, &Lamp{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "l"}}))
		u := must(untyped.GetLive(w.ctx, w.key("l")))
		for _, err := range []error{
			second(h.UpdateStatus(w.ctx, l)), second(untyped.UpdateStatus(w.ctx, u)),
			second(h.ApplyStatus(w.ctx, client.UnstructuredConfiguration(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"namespace": w.namespace, "name": "l"}, "status": map[string]any{"a": "b"},
			}}))),
		} {
			var not *client.NotServedError
			Expect(err).To(BeAssignableToTypeOf(not))
			Expect(err).To(MatchError(ContainSubstring("does not serve the status of Lamp of scenario.setpoint.dev/v1; enable the status subresource in its CRD")))
			Expect(apierrors.IsNotFound(err) || meta.IsNoMatchError(err)).To(BeFalse())
		}
		missing := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "none"}}
		_, err := client.For[*appsv1.Deployment](w.Client).UpdateStatus(w.ctx, missing)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		_, err = client.ForKind[*unstructured.Unstructured](w.Client, schema.GroupVersionKind{Group: lamps.Group, Version: "v9", Kind: "Lamp"}).GetLive(w.ctx, w.key("l"))
		Expect(meta.IsNoMatchError(err)).To(BeTrue(), "%v", err)
	}, NodeTimeout(patience))

	It("logs the API server's warnings once", func(ctx SpecContext) {
		installLamps(ctx)
		w := newWriting(ctx)
		var log bytes.Buffer
		logged := logr.NewContextWithSlogLogger(w.ctx, slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 {
			must(client.Collect(client.For[*corev1.Endpoints](w.Client).ListLive(logged, client.ListOptions{Namespace: w.namespace}))) //nolint:staticcheck // deprecated is what is wanted
			odd := lamp("l", int64(1))
			odd.Object["shade"] = "red"
			odd.SetNamespace(w.namespace)
			must(client.ForKind[*unstructured.Unstructured](w.Client, lampKind).Create(logged, odd, client.DryRun()))
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		Expect(lines).To(HaveLen(2), log.String())
		Expect(lines[0]).To(And(ContainSubstring("level=WARN"), ContainSubstring("kind=Endpoints"), ContainSubstring("deprecated")))
		Expect(lines[1]).To(And(ContainSubstring("level=WARN"), ContainSubstring("kind=Lamp"), ContainSubstring(`unknown field`), ContainSubstring("shade")))
	}, NodeTimeout(patience))
})

func second[T any](_ T, err error) error { return err }

func names[T client.Object](all []T) []string {
	var names []string
	for _, o := range all {
		names = append(names, o.GetName())
	}
	return names
}
