// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

var budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// maxDisrupted is how many evictions a PodDisruptionBudget waits for at most.
const maxDisrupted = 2000

// evict answers an eviction: it deletes live (nil: there is none) unless a
// PodDisruptionBudget forbids that.
func (a *API) evict(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	eviction := &policyv1.Eviction{}
	if err := decodeSub(r, eviction, policyv1.SchemeGroupVersion.WithKind("Eviction")); err != nil {
		return nil, err
	}
	if eviction.Name != r.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options, err := evictionOptions(eviction, r.Query["dryRun"])
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, t.NotFound(r.Name)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, pod); err != nil {
		return nil, err
	}
	ended := slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending}, pod.Status.Phase)
	if !ended && pod.DeletionTimestamp == nil {
		failure, err := a.disrupt(pod, len(options.DryRun) > 0)
		if err != nil {
			return nil, err
		}
		if failure != nil {
			return r.Answer(int(failure.Code), failure)
		}
	}
	if err := rules.CheckPreconditions(&t.Definition, live, options); err != nil {
		return nil, err
	}
	if len(options.DryRun) == 0 {
		if live, err = a.announce(t, live, pod); err != nil {
			return nil, err
		}
		options.Preconditions = nil // they held before the announcement
	}
	if _, _, err := a.controllers.Delete(t, live, options); err != nil {
		return nil, err
	}
	return succeed(r)
}

// evictionOptions returns the options of the deletion. A dry run is asked for in the query or in
// the eviction.
func evictionOptions(e *policyv1.Eviction, dryRun []string) (*metav1.DeleteOptions, error) {
	if e.DeleteOptions == nil {
		return &metav1.DeleteOptions{DryRun: dryRun}, nil
	}
	switch own := e.DeleteOptions.DryRun; {
	case len(own) == 0:
		e.DeleteOptions.DryRun = dryRun
	case len(dryRun) > 0 && !slices.Equal(own, dryRun):
		return nil, fmt.Errorf("Non-matching dry-run options in request and content: %v and %v", dryRun, own)
	}
	return e.DeleteOptions, nil
}

// announce adds the condition DisruptionTarget to a Pod that is evicted.
func (a *API) announce(t *store.Table, live *unstructured.Unstructured, pod *corev1.Pod) (*unstructured.Unstructured, error) {
	setPodCondition(pod, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
	})
	u, err := t.Codec().Stored(pod)
	if err != nil || jsonvalue.Equal(u.Object, live.Object) {
		return live, err
	}
	return a.store.Record(t, watch.Modified, live, u), nil
}

func setPodCondition(pod *corev1.Pod, next corev1.PodCondition) {
	next.LastTransitionTime = metav1.Now()
	for i, old := range pod.Status.Conditions {
		if old.Type == next.Type {
			if old.Status == next.Status {
				next.LastTransitionTime = old.LastTransitionTime
			}
			pod.Status.Conditions[i] = next
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, next)
}

// disrupt takes one disruption from the PodDisruptionBudget of a Pod, if it has one. It
// returns a failure for several budgets.
func (a *API) disrupt(pod *corev1.Pod, dry bool) (*metav1.Status, error) {
	t := a.store.Tables[budgets]
	if t == nil || len(pod.Labels) == 0 {
		return nil, nil //nolint:nilnil // no budget
	}
	var live *unstructured.Unstructured
	budget := &policyv1.PodDisruptionBudget{}
	for _, u := range t.Sorted() {
		b := &policyv1.PodDisruptionBudget{}
		if u.GetNamespace() != pod.Namespace || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b) != nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if live != nil {
			return &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			}, nil
		}
		live, budget = u, b
	}
	if live == nil || unguarded(pod, budget) {
		return nil, nil //nolint:nilnil // no budget
	}
	if err := takeDisruption(budget, pod.Name); err != nil || dry {
		return nil, err
	}
	u, err := t.Codec().Stored(budget)
	if err == nil {
		a.store.Record(t, watch.Modified, live, u)
	}
	return nil, err
}

// unguarded reports whether the eviction of a Pod that is not ready does not count.
func unguarded(pod *corev1.Pod, budget *policyv1.PodDisruptionBudget) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return false
		}
	}
	policy := budget.Spec.UnhealthyPodEvictionPolicy
	return policy != nil && *policy == policyv1.AlwaysAllow ||
		budget.Status.DesiredHealthy > 0 && budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy
}

// takeDisruption records a disruption in the budget's status, if one is allowed.
func takeDisruption(b *policyv1.PodDisruptionBudget, pod string) error {
	forbid := func(why, cause string) error {
		err := apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, b.Name, errors.New(why))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause,
			Message: fmt.Sprintf("The disruption budget %s does not allow evicting pods currently: %s", b.Name, cause)}}
		return err
	}
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return violated(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case b.Status.DisruptionsAllowed < 0:
		return forbid("pdb disruptions allowed is negative", "pdb disruptions allowed is negative")
	case len(b.Status.DisruptedPods) > maxDisrupted:
		return forbid("DisruptedPods map too big - too many evictions not confirmed by PDB controller", "too many pending evictions not confirmed by PDB controller")
	case b.Status.DisruptionsAllowed == 0:
		return violated(0, whyNotDisrupted(b))
	}
	if b.Status.DisruptionsAllowed--; b.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			ObservedGeneration: b.Status.ObservedGeneration,
		})
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod] = metav1.Now()
	return nil
}

func whyNotDisrupted(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	known := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	switch {
	case known && c.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %s", b.Name, c.Message)
	case b.Status.CurrentHealthy <= b.Status.DesiredHealthy:
		return fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	case known:
		return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently (%s): %s", b.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
}

// violated is the error for an eviction that a budget forbids; retry is in seconds.
func violated(retry int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retry)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}
