// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"maps"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// bind answers a binding: it assigns live (nil: there is none), a Pod, to a node.
func (a *API) bind(r *request.Request, t *store.Table, live *unstructured.Unstructured) (*http.Response, error) {
	binding := &corev1.Binding{}
	if err := decodeSub(r, binding, corev1.SchemeGroupVersion.WithKind("Binding")); err != nil {
		return nil, err
	}
	if binding.Name != r.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	var errs field.ErrorList
	if kind := binding.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), kind, []string{"Node", "<empty>"}))
	}
	if binding.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	switch {
	case len(errs) > 0:
		return nil, errs.ToAggregate()
	case live == nil:
		return nil, t.NotFound(r.Name)
	}
	if err := bindingPreconditions(t, live, binding.UID, binding.ResourceVersion); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, pod); err != nil {
		return nil, err
	}
	if why := unbindable(pod); why != "" {
		return nil, kinds.Conflict(schema.GroupResource{Resource: "pods/binding"}, pod.Name, "%s", why)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	pod.Annotations = merged(pod.Annotations, binding.Annotations)
	pod.Labels = merged(pod.Labels, binding.Labels)
	setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	u, err := t.Codec().Stored(pod)
	if err != nil {
		return nil, err
	}
	if !r.DryRun {
		a.store.Record(t, watch.Modified, live, u)
	}
	return succeed(r)
}

// merged returns a with the entries of b.
func merged(a, b map[string]string) map[string]string {
	if a == nil {
		a = map[string]string{}
	}
	maps.Copy(a, b)
	return a
}

// unbindable returns why a Pod cannot be assigned to a node, or "".
func unbindable(pod *corev1.Pod) string {
	switch {
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Sprintf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Sprintf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	return ""
}

func bindingPreconditions(t *store.Table, live *unstructured.Unstructured, uid types.UID, version string) error {
	const format = "StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: " +
		"Precondition failed: %s in precondition: %v, %[2]s in object meta: %[4]v"
	switch {
	case uid != "" && uid != live.GetUID():
		return t.Conflict(live.GetName(), format, t.StorageKey(live), "UID", uid, live.GetUID())
	case version != "" && version != live.GetResourceVersion():
		return t.Conflict(live.GetName(), format, t.StorageKey(live), "ResourceVersion", version, live.GetResourceVersion())
	}
	return nil
}
