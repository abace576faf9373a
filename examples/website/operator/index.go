// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/handler"
)

// IndexName is the ConfigMap in each namespace that lists its Websites: one entry per site, from
// name to address. It is shared, so no site can own it, and the garbage collector cannot clean it
// up. The finalizer does.
const IndexName = "website-index"

func address(site *v1.Website) string {
	return "http://" + cmp.Or(site.Spec.Host, defaultHost(site)) // no host before v1
}

// publish adds the site to the index.
func (r *reconciler) publish(ctx context.Context, site *v1.Website) error {
	key := types.NamespacedName{Namespace: site.Namespace, Name: IndexName}
	index, err := r.configMaps.Get(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && index.Data[site.Name] == address(site) {
		return nil
	}
	// This Apply creates the index if needed. It sets no entry, so it does not affect other sites.
	empty := coreac.ConfigMap(key.Name, key.Namespace).WithLabels(map[string]string{"app.kubernetes.io/managed-by": Name})
	if _, err := client.For[*corev1.ConfigMap](r.client).Apply(ctx, empty); err != nil {
		return fmt.Errorf("creating the index %s: %w", key, err)
	}
	return r.setEntry(ctx, key, site.Name, address(site))
}

// unpublish removes the site from the index. A missing index lists no site.
func (r *reconciler) unpublish(ctx context.Context, site *v1.Website) error {
	err := r.setEntry(ctx, types.NamespacedName{Namespace: site.Namespace, Name: IndexName}, site.Name, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setEntry sets one entry, or removes it if the value is nil. A merge patch changes no other entry.
func (r *reconciler) setEntry(ctx context.Context, key types.NamespacedName, name string, value any) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]any{name: value}})
	if err != nil {
		return err
	}
	if _, err := client.For[*corev1.ConfigMap](r.client).Patch(ctx, key, types.MergePatchType, patch); err != nil {
		return fmt.Errorf("writing the entry %s of the index %s: %w", name, key, err)
	}
	return nil
}

// unlisted is an event handler for ConfigMaps. It enqueues the sites whose entry was removed from
// an index or changed.
func unlisted(_ context.Context, e handler.Event) ([]types.NamespacedName, error) {
	if e.Key().Name != IndexName {
		return nil, nil
	}
	var keys []types.NamespacedName
	before, after := entries(e.Old), entries(e.New)
	for name, address := range before {
		if after[name] != address {
			keys = append(keys, types.NamespacedName{Namespace: e.Key().Namespace, Name: name})
		}
	}
	return keys, nil
}

func entries(obj handler.Object) map[string]string {
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		return cm.Data
	}
	return nil
}
