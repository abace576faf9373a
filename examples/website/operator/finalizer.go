// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
	websiteac "github.com/setpoint-dev/setpoint/examples/website/applyconfiguration/api/v1alpha1"
)

// addFinalizer makes sure that finalize will be called, before there is anything to clean up. It is applied, not patched,
// so that a site read from a cache that lags behind does no harm; with the UID it is this site, else a conflict.
func (r *reconciler) addFinalizer(ctx context.Context, site *v1alpha1.Website) error {
	if slices.Contains(site.Finalizers, v1alpha1.Finalizer) {
		return nil
	}
	desired := websiteac.Website(site.Name, site.Namespace).WithUID(site.UID).WithFinalizers(v1alpha1.Finalizer)
	if _, err := client.For[*v1alpha1.Website](r.client).Apply(ctx, desired); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	return nil
}

// finalize cleans up what the garbage collector would not, then lets the site go. What the site owns is collected after.
func (r *reconciler) finalize(ctx context.Context, site *v1alpha1.Website) error {
	i := slices.Index(site.Finalizers, v1alpha1.Finalizer)
	if i < 0 {
		return nil // done; somebody else's finalizer still holds it
	}
	if err := r.unpublish(ctx, site); err != nil {
		return err
	}
	return r.removeFinalizer(ctx, site, i)
}

// removeFinalizer takes the i-th finalizer off, whoever put it there: provided that it is still this site, and still ours at
// that place. Everything else about the site may have changed since it was read.
func (r *reconciler) removeFinalizer(ctx context.Context, site *v1alpha1.Website, i int) error {
	path := fmt.Sprintf("/metadata/finalizers/%d", i)
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": site.UID},
		{"op": "test", "path": path, "value": v1alpha1.Finalizer},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: site.Namespace, Name: site.Name}
	_, err = client.For[*v1alpha1.Website](r.client).Patch(ctx, key, types.JSONPatchType, patch)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}
