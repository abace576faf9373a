// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/examples/website/api/v1alpha1"
)

// addFinalizer ensures that finalize will be called, before there is anything to clean up.
func (r *reconciler) addFinalizer(ctx context.Context, site *v1alpha1.Website) error {
	if _, err := client.For[*v1alpha1.Website](r.client).EnsureFinalizer(ctx, site, v1alpha1.Finalizer); err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	return nil
}

// finalize cleans up what the garbage collector does not, and then removes the finalizer. The
// garbage collector deletes the owned objects afterwards.
func (r *reconciler) finalize(ctx context.Context, site *v1alpha1.Website) error {
	if !slices.Contains(site.Finalizers, v1alpha1.Finalizer) {
		return nil // done; another finalizer still holds it
	}
	if err := r.unpublish(ctx, site); err != nil {
		return err
	}
	if _, err := client.For[*v1alpha1.Website](r.client).RemoveFinalizer(ctx, site, v1alpha1.Finalizer); err != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}
