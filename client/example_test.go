// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

var budgets = sim.Resource{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget", Name: "poddisruptionbudgets", Namespaced: true}

// example is a client of an API server in memory, with two objects.
func example() (*client.Client, *sim.Server) {
	api := sim.NewServer(sim.ConfigMaps, sim.Deployments, budgets)
	c, err := client.New(api.Config(), client.Options{FieldOwner: "example"})
	if err != nil {
		panic(err)
	}
	api.Put(budgets, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front"}})
	api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owner"}})
	return c, api
}

// Conditions are apimachinery's: meta.SetStatusCondition keeps the time of the last transition, and
// reports whether anything changed.
func ExampleHandle_UpdateStatus() {
	ctx := context.Background()
	c, _ := example()
	h := client.For[*policyv1.PodDisruptionBudget](c)
	report := func(ready metav1.ConditionStatus, reason string) error {
		// A controller reads from a cache.
		obj, err := h.GetLive(ctx, types.NamespacedName{Namespace: "shop", Name: "front"})
		if err != nil {
			return err
		}
		changed := meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: ready, Reason: reason, ObservedGeneration: obj.Generation,
		})
		if !changed && obj.Status.ObservedGeneration == obj.Generation {
			fmt.Println("nothing to report")
			return nil
		}
		obj.Status.ObservedGeneration = obj.Generation
		obj, err = h.UpdateStatus(ctx, obj)
		if err == nil {
			fmt.Println(obj.Status.ObservedGeneration, meta.IsStatusConditionTrue(obj.Status.Conditions, "Ready"))
		}
		return err
	}
	fmt.Println(report(metav1.ConditionFalse, "RollingOut"))
	fmt.Println(report(metav1.ConditionTrue, "AllReady"))
	fmt.Println(report(metav1.ConditionTrue, "AllReady"))
	// Output:
	// 1 false
	// <nil>
	// 1 true
	// <nil>
	// nothing to report
	// <nil>
}

// Each field owner applies its own conditions and leaves the others alone.
func ExampleHandle_ApplyStatus() {
	ctx := context.Background()
	c, _ := example()
	h := client.For[*policyv1.PodDisruptionBudget](c)
	live, err := h.GetLive(ctx, types.NamespacedName{Namespace: "shop", Name: "front"})
	if err != nil {
		panic(err)
	}
	conditions := live.Status.Conditions
	meta.SetStatusCondition(&conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllReady", ObservedGeneration: live.Generation})
	status := policyac.PodDisruptionBudgetStatus().WithObservedGeneration(live.Generation)
	for _, k := range conditions {
		status.WithConditions(metaac.Condition().WithType(k.Type).WithStatus(k.Status).WithReason(k.Reason).WithMessage(k.Message).
			WithObservedGeneration(k.ObservedGeneration).WithLastTransitionTime(k.LastTransitionTime))
	}
	applied, err := h.ApplyStatus(ctx, policyac.PodDisruptionBudget("front", "shop").WithUID(live.UID).WithStatus(status), client.UnlessAlready(live))
	if err != nil {
		panic(err)
	}
	fmt.Println(applied.Status.Conditions[0].Type, applied.Status.Conditions[0].Status)
	// Output: Ready True
}

// A Reconcile may apply all that is wanted each time; what is there already costs no request.
func ExampleUnlessAlready() {
	ctx := context.Background()
	c, api := example()
	configMaps := client.For[*corev1.ConfigMap](c)
	var live *corev1.ConfigMap // what the cache has; nothing yet
	for range 3 {
		desired := coreac.ConfigMap("front", "shop").WithData(map[string]string{"color": "red"})
		applied, err := configMaps.Apply(ctx, desired, client.UnlessAlready(live))
		if err != nil {
			panic(err)
		}
		live = applied // the cache will show it
	}
	fmt.Println(api.Count("apply", sim.ConfigMaps))
	// Output: 1
}

func ExampleCreateOrUpdate() {
	ctx := context.Background()
	c, _ := example()
	configMaps := client.For[*corev1.ConfigMap](c)
	for _, color := range []string{"red", "red", "blue"} {
		site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"}}
		stored, result, err := client.CreateOrUpdate(ctx, configMaps, site, func(m *corev1.ConfigMap) error {
			m.Data = map[string]string{"color": color}
			return nil
		})
		if err != nil {
			panic(err)
		}
		fmt.Println(stored.Data["color"], result)
	}
	// Output:
	// red created
	// red unchanged
	// blue updated
}

func ExamplePatchFrom() {
	ctx := context.Background()
	c, _ := example()
	configMaps := client.For[*corev1.ConfigMap](c)
	before, err := configMaps.GetLive(ctx, types.NamespacedName{Namespace: "shop", Name: "owner"})
	if err != nil {
		panic(err)
	}
	after := before.DeepCopy()
	after.Labels = map[string]string{"tier": "gold"}
	stored, err := client.PatchFrom(ctx, configMaps, before, after)
	fmt.Println(stored.Labels, err)
	_, err = client.PatchFrom(ctx, configMaps, before, after, client.OptimisticLock())
	fmt.Println(apierrors.IsConflict(err))
	// Output:
	// map[tier:gold] <nil>
	// true
}

// site is code that takes an interface instead of a handle.
type site struct {
	configMaps client.ReadWriter[*corev1.ConfigMap]
}

func (s *site) paint(ctx context.Context, color string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"}}
	_, _, err := client.CreateOrUpdate(ctx, s.configMaps, m, func(m *corev1.ConfigMap) error {
		m.Data = map[string]string{"color": color}
		return nil
	})
	return err
}

// loud logs the creates and updates of another writer.
type loud[T client.Object] struct{ client.ReadWriter[T] }

func (w loud[T]) Create(ctx context.Context, obj T, options ...client.Option) (T, error) {
	fmt.Println("create", client.ObjectKeyFromObject(obj))
	return w.ReadWriter.Create(ctx, obj, options...)
}

func (w loud[T]) Update(ctx context.Context, obj T, options ...client.Option) (T, error) {
	fmt.Println("update", client.ObjectKeyFromObject(obj))
	return w.ReadWriter.Update(ctx, obj, options...)
}

// A wrapper sees each request of CreateOrUpdate.
func ExampleReadWriter_wrapper() {
	ctx := context.Background()
	c, _ := example()
	s := &site{loud[*corev1.ConfigMap]{client.For[*corev1.ConfigMap](c)}}
	fmt.Println(s.paint(ctx, "red"))
	fmt.Println(s.paint(ctx, "blue"))
	// Output:
	// create shop/site
	// <nil>
	// update shop/site
	// <nil>
}

// full is a fake with the methods that the code under test uses.
type full struct {
	client.ReadWriter[*corev1.ConfigMap] // nil: other methods panic
}

func (full) GetLive(_ context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
}

func (full) Create(context.Context, *corev1.ConfigMap, ...client.Option) (*corev1.ConfigMap, error) {
	return nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "site", errors.New("exceeded quota"))
}

// A fake embeds the interface and defines the methods that a test needs.
func ExampleReadWriter_fake() {
	s := &site{full{}}
	fmt.Println(s.paint(context.Background(), "red"))
	// Output: configmaps "site" is forbidden: exceeded quota
}

func ExampleHandle_ListLive() {
	ctx := context.Background()
	c, _ := example()
	for m, err := range client.For[*corev1.ConfigMap](c).ListLive(ctx, client.ListOptions{Namespace: "shop"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(m.Name)
	}
	// Output: owner
}

func ExampleHandle_EnsureFinalizer() {
	ctx := context.Background()
	c, _ := example()
	maps := client.For[*corev1.ConfigMap](c)
	obj, err := maps.GetLive(ctx, types.NamespacedName{Namespace: "shop", Name: "owner"})
	if err != nil {
		panic(err)
	}
	if obj, err = maps.EnsureFinalizer(ctx, obj, "example.com/cleanup"); err != nil {
		panic(err)
	}
	fmt.Println(obj.Finalizers)
	if obj, err = maps.RemoveFinalizer(ctx, obj, "example.com/cleanup"); err != nil {
		panic(err)
	}
	fmt.Println(obj.Finalizers)
	// Output:
	// [example.com/cleanup]
	// []
}

// An owner makes one object per part, and deletes the objects of former parts.
func ExampleHandle_Prune() {
	ctx := context.Background()
	c, _ := example()
	maps := client.For[*corev1.ConfigMap](c)
	owner, err := maps.GetLive(ctx, types.NamespacedName{Namespace: "shop", Name: "owner"})
	if err != nil {
		panic(err)
	}
	// cache.Handle.OwnerRef(owner) says the same in a word.
	ref := metaac.OwnerReference().
		WithAPIVersion("v1").WithKind("ConfigMap").WithName(owner.Name).WithUID(owner.UID).WithController(true).WithBlockOwnerDeletion(true)
	reconcile := func(parts ...string) {
		for _, part := range parts {
			if _, err := maps.Apply(ctx, coreac.ConfigMap("owner-"+part, "shop").WithOwnerReferences(ref)); err != nil {
				panic(err)
			}
		}
		// A controller lists from a cache.
		all, err := client.Collect(maps.ListLive(ctx, client.ListOptions{Namespace: "shop"}))
		if err != nil {
			panic(err)
		}
		wanted := sets.New(parts...)
		deleted, err := maps.Prune(ctx, owner, all, func(m *corev1.ConfigMap) bool { return wanted.Has(strings.TrimPrefix(m.Name, "owner-")) })
		fmt.Println(len(deleted), err)
	}
	reconcile("a", "b")
	reconcile("b")
	// Output:
	// 0 <nil>
	// 1 <nil>
}

func ExampleSubresourceOf() {
	scaleTo := func(ctx context.Context, c *client.Client, key types.NamespacedName, replicas int32) error {
		scales := client.SubresourceOf[*autoscalingv1.Scale](client.For[*appsv1.Deployment](c), "scale")
		scale, err := scales.Get(ctx, key)
		if err != nil {
			return err
		}
		scale.Spec.Replicas = replicas
		_, err = scales.Update(ctx, scale)
		return err
	}
	evict := func(ctx context.Context, c *client.Client, key types.NamespacedName) error {
		_, err := client.SubresourceOf[*policyv1.Eviction](client.For[*corev1.Pod](c), "eviction").Create(ctx, key, &policyv1.Eviction{})
		return err
	}
	_, _ = scaleTo, evict
}
