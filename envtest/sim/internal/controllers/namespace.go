// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

var systemNamespaces = []string{metav1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic, metav1.NamespaceSystem}

// EnsureNamespace creates a namespace unless it exists, if namespaces are served.
func (c *Controllers) EnsureNamespace(name string) {
	t := c.store.Tables[kinds.Namespaces.GVR()]
	if t == nil || t.Objects[store.Key{Name: name}] != nil {
		return
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
	u.SetGroupVersionKind(t.GVK())
	rules.FoundNamespace(u)
	c.store.Put(t, nil, u)
}

// endNamespace deletes a namespace: it becomes Terminating first, and goes with its last
// finalizer.
func (c *Controllers) endNamespace(t *store.Table, live *unstructured.Unstructured, o *metav1.DeleteOptions) (*unstructured.Unstructured, bool, error) {
	if slices.Contains([]string{metav1.NamespaceDefault, metav1.NamespacePublic, metav1.NamespaceSystem}, live.GetName()) {
		return nil, false, apierrors.NewForbidden(t.GVR().GroupResource(), live.GetName(), fmt.Errorf("this namespace may not be deleted"))
	}
	if p := o.Preconditions; p != nil {
		if p.UID != nil && *p.UID != live.GetUID() {
			return nil, false, t.Conflict(live.GetName(), "Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, live.GetUID())
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion() {
			return nil, false, t.Conflict(live.GetName(), "Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
				*p.ResourceVersion, live.GetResourceVersion())
		}
	}
	dry := len(o.DryRun) > 0
	if live.GetDeletionTimestamp() != nil {
		if len(rules.SpecFinalizers(live)) > 0 || len(live.GetFinalizers()) > 0 {
			return live, false, nil
		}
		if !dry {
			c.store.Remove(t, live)
		}
		return live, true, nil
	}
	u, at := live.DeepCopy(), metav1.Now()
	u.SetDeletionTimestamp(&at)
	status, _ := u.Object["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		u.Object["status"] = status
	}
	status["phase"] = string(corev1.NamespaceTerminating)
	u.SetFinalizers(rules.DeletionFinalizers(&t.Definition, live, o))
	if dry {
		return u, false, nil
	}
	return c.store.Record(t, watch.Modified, live, u), false, nil
}

// noteNamespace records the namespaces that are being deleted, and which of them changed.
func (c *Controllers) noteNamespace(t *store.Table, kind watch.EventType, after *unstructured.Unstructured) {
	switch {
	case !t.IsNamespaces():
		if _, ok := c.terminating[after.GetNamespace()]; ok {
			c.terminating[after.GetNamespace()] = true
		}
	case kind == watch.Deleted:
		delete(c.terminating, after.GetName())
	case after.GetDeletionTimestamp() != nil:
		c.terminating[after.GetName()] = true
	}
}

// remains counts what a namespace still holds.
type remains struct {
	objects    map[string]int // by resource and group
	finalizers map[string]int
}

// drain deletes the content of a namespace that is being deleted. When nothing is left, it
// removes the namespace's finalizer.
func (c *Controllers) drain(name string) {
	namespaces := c.store.Tables[kinds.Namespaces.GVR()]
	if namespaces == nil {
		return
	}
	live := namespaces.Objects[store.Key{Name: name}]
	if live == nil || len(rules.SpecFinalizers(live)) == 0 {
		return
	}
	left := remains{map[string]int{}, map[string]int{}}
	pods := c.store.Tables[kinds.Pods.GVR()]
	if pods != nil {
		c.empty(pods, name, &left)
	}
	podsLeft := len(left.objects) > 0
	if podsLeft {
		left = remains{} // the real controller does not report them
	} else {
		seen := map[*store.Storage]bool{} // a kind's versions share its objects
		for _, t := range c.store.SortedTables() {
			if t.Namespaced && t != pods && !seen[t.Storage] {
				seen[t.Storage] = true
				c.empty(t, name, &left)
			}
		}
	}
	c.reportRemains(namespaces, live, left)
	if podsLeft || len(left.objects) > 0 {
		return
	}
	if live = namespaces.Objects[store.Key{Name: name}]; live != nil {
		u := live.DeepCopy()
		rules.SetSpecFinalizers(u, slices.DeleteFunc(rules.SpecFinalizers(live), func(f string) bool { return f == string(corev1.FinalizerKubernetes) }))
		if !jsonvalue.Equal(u.Object, live.Object) {
			c.control(namespaces, live, u, "finalize")
		}
	}
}

// empty deletes the objects of a table in a namespace, and counts what is left.
func (c *Controllers) empty(t *store.Table, namespace string, left *remains) {
	background := metav1.DeletePropagationBackground
	for _, k := range slices.Clone(store.Within(t.Keys, namespace, "")) {
		last := t.Objects[k]
		if !heldBack(t, last) {
			var gone bool
			// Without preconditions and dry run it cannot fail.
			if last, gone, _ = c.Delete(t, last, &metav1.DeleteOptions{PropagationPolicy: &background}); gone {
				continue
			}
		}
		left.objects[t.Name+"."+t.Group]++
		for _, f := range last.GetFinalizers() {
			left.finalizers[f]++
		}
	}
}

// heldBack reports whether only finalizers keep a deleted object, so that another deletion has no
// effect. It need not find all of these objects.
func heldBack(t *store.Table, o *unstructured.Unstructured) bool {
	metadata := jsonvalue.Object(o.Object, "metadata")
	finalizers, _ := metadata["finalizers"].([]any)
	return t.Kind != "Pod" && metadata["deletionTimestamp"] != nil && metadata["deletionGracePeriodSeconds"] == int64(0) && len(finalizers) > 0 &&
		!slices.Contains(finalizers, any(metav1.FinalizerOrphanDependents)) && !slices.Contains(finalizers, any(metav1.FinalizerDeleteDependents))
}

// reportRemains sets the conditions of a namespace that is being deleted.
func (c *Controllers) reportRemains(t *store.Table, live *unstructured.Unstructured, left remains) {
	var has corev1.Namespace
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &has); err != nil {
		return // a namespace that Put stored in another form
	}
	changed := false
	for _, c := range left.conditions() {
		at := slices.IndexFunc(has.Status.Conditions, func(o corev1.NamespaceCondition) bool { return o.Type == c.Type })
		if at < 0 {
			has.Status.Conditions = append(has.Status.Conditions, c)
			changed = true
			continue
		}
		if old := has.Status.Conditions[at]; old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		changed = changed || has.Status.Conditions[at] != c
		has.Status.Conditions[at] = c
	}
	if !changed {
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&has)
	if err != nil {
		return // not for a namespace
	}
	u := live.DeepCopy()
	u.Object["status"] = content["status"]
	c.control(t, live, u, "status")
}

func (r remains) conditions() []corev1.NamespaceCondition {
	list := []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionDiscoveryFailure, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
		{Type: corev1.NamespaceDeletionGVParsingFailure, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
		{Type: corev1.NamespaceDeletionContentFailure, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
		{Type: corev1.NamespaceContentRemaining, Reason: "ContentRemoved", Message: "All content successfully removed"},
		{Type: corev1.NamespaceFinalizersRemaining, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
	}
	for i := range list {
		list[i].Status, list[i].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
	}
	failed := func(c *corev1.NamespaceCondition, reason, message, format string, counts map[string]int) {
		if len(counts) == 0 {
			return
		}
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf(format, name, counts[name]))
		}
		slices.Sort(parts)
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, reason, message+strings.Join(parts, ", ")
	}
	failed(&list[3], "SomeResourcesRemain", "Some resources are remaining: ", "%s has %d resource instances", r.objects)
	failed(&list[4], "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: ", "%s in %d resource instances", r.finalizers)
	return list
}
