// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// Delete deletes an object, or marks it as being deleted if it has finalizers or a grace period.
// It returns the last state and whether the object is gone.
func (c *Controllers) Delete(t *store.Table, live *unstructured.Unstructured, o *metav1.DeleteOptions) (*unstructured.Unstructured, bool, error) {
	if t.IsNamespaces() {
		return c.endNamespace(t, live, o)
	}
	if err := rules.CheckPreconditions(&t.Definition, live, o); err != nil {
		return nil, false, err
	}
	grace, graceful, pending := rules.GracePeriod(&t.Definition, live, o)
	if pending {
		return live, false, nil
	}
	dry := len(o.DryRun) > 0
	if t.GVR() == kinds.CRDs && live.GetDeletionTimestamp() == nil {
		return c.endCRD(t, live, dry), false, nil
	}
	finalizers := rules.DeletionFinalizers(&t.Definition, live, o)
	if !graceful && len(finalizers) == 0 {
		if dry {
			return live, true, nil
		}
		c.store.Remove(t, live)
		return store.WithVersion(live, c.store.Version), true, nil
	}
	u := live.DeepCopy()
	u.SetFinalizers(finalizers)
	if graceful && live.GetDeletionTimestamp() != nil {
		rules.Shorten(u, grace)
	} else {
		rules.MarkDeleted(u, grace)
	}
	if !jsonvalue.Equal(u.Object, live.Object) && !dry {
		u = c.store.Record(t, watch.Modified, live, u)
	}
	if len(finalizers) > 0 || grace > 0 {
		return u, false, nil
	}
	if dry {
		return u, true, nil
	}
	c.store.Remove(t, u)
	return store.WithVersion(u, c.store.Version), true, nil
}
