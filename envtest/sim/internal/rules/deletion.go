// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
)

// GracePeriod returns the grace period of a deletion in seconds, and whether the kind has one. A
// deletion is pending if the object is being deleted already, with a period that is not longer.
func GracePeriod(d *kinds.Definition, live *unstructured.Unstructured, o *metav1.DeleteOptions) (seconds int64, graceful, pending bool) {
	if !d.BuiltIn || d.Kind != "Pod" {
		return 0, false, false
	}
	asked := o.GracePeriodSeconds
	if asked != nil && *asked < 0 {
		asked = ptrTo(int64(1))
	}
	if live.GetDeletionTimestamp() != nil {
		has := live.GetDeletionGracePeriodSeconds()
		switch {
		case has == nil || *has == 0:
			return 0, false, false
		case asked == nil || *asked >= *has:
			return 0, true, true
		}
		return *asked, true, false
	}
	spec, phase := jsonvalue.Object(live.Object, "spec"), jsonvalue.Object(live.Object, "status")["phase"]
	seconds, _ = spec["terminationGracePeriodSeconds"].(int64)
	if asked != nil {
		seconds = *asked
	}
	if node, _ := spec["nodeName"].(string); node == "" || phase == "Failed" || phase == "Succeeded" {
		seconds = 0
	}
	if seconds < 0 {
		seconds = 1
	}
	return seconds, true, false
}

func ptrTo[T any](v T) *T { return &v }

// Shorten moves the deletion time of an object forward, but not into the past.
func Shorten(u *unstructured.Unstructured, grace int64) {
	has, at := u.GetDeletionGracePeriodSeconds(), u.GetDeletionTimestamp()
	next := metav1.NewTime(at.Add(time.Duration(grace-*has) * time.Second))
	if n := metav1.Now(); next.Before(&n) {
		next = n
		if grace != 0 {
			grace = 1
		}
	}
	u.SetDeletionTimestamp(&next)
	u.SetDeletionGracePeriodSeconds(&grace)
}

// MarkDeleted sets the deletion time of an object, unless it has an earlier one.
func MarkDeleted(u *unstructured.Unstructured, grace int64) {
	if u.GetDeletionTimestamp() == nil && u.GetGeneration() > 0 {
		u.SetGeneration(u.GetGeneration() + 1)
	}
	at := metav1.NewTime(metav1.Now().Add(time.Duration(grace) * time.Second))
	if has := u.GetDeletionTimestamp(); has == nil || has.After(at.Time) {
		u.SetDeletionTimestamp(&at)
	}
	u.SetDeletionGracePeriodSeconds(&grace)
}

// CheckPreconditions checks the uid and resourceVersion that a deletion names.
func CheckPreconditions(d *kinds.Definition, live *unstructured.Unstructured, o *metav1.DeleteOptions) error {
	if o.Preconditions == nil {
		return nil
	}
	as := schema.GroupResource{Group: d.Group, Resource: d.Kind} // the real server names the kind
	if want := o.Preconditions.UID; want != nil && *want != live.GetUID() {
		return kinds.Conflict(as, live.GetName(), "the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *want, live.GetUID())
	}
	if want := o.Preconditions.ResourceVersion; want != nil && *want != live.GetResourceVersion() {
		return kinds.Conflict(as, live.GetName(), "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). "+
			"The object might have been modified", *want, live.GetResourceVersion())
	}
	return nil
}

// DeletionFinalizers returns the object's finalizers, with those that the deletion options add for
// the garbage collector and without those that they rule out.
func DeletionFinalizers(d *kinds.Definition, live *unstructured.Unstructured, o *metav1.DeleteOptions) []string {
	has := live.GetFinalizers()
	if d.GVR().GroupResource() == (schema.GroupResource{Resource: "events"}) {
		return has
	}
	orphan := slices.Contains(has, metav1.FinalizerOrphanDependents)
	foreground := !orphan && slices.Contains(has, metav1.FinalizerDeleteDependents)
	switch {
	case o.OrphanDependents != nil: //nolint:staticcheck // clients still send it
		orphan, foreground = *o.OrphanDependents, false //nolint:staticcheck // the same
	case o.PropagationPolicy != nil:
		orphan = *o.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *o.PropagationPolicy == metav1.DeletePropagationForeground
	}
	next := slices.DeleteFunc(slices.Clone(has), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		next = append(next, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		next = append(next, metav1.FinalizerDeleteDependents)
	}
	if len(next) == len(has) && !slices.ContainsFunc(next, func(f string) bool { return !slices.Contains(has, f) }) {
		return has // in its old order
	}
	return next
}

// Removable reports whether an update removed the last finalizer of an object in deletion.
func Removable(live, u *unstructured.Unstructured) bool {
	grace := live.GetDeletionGracePeriodSeconds()
	if u.GetKind() == kinds.Namespaces.Kind && len(SpecFinalizers(u)) > 0 && u.GetAPIVersion() == "v1" {
		return false
	}
	return live.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}
