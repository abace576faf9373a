// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/setpoint-dev/setpoint/internal/manifests"
)

const fieldManager = "envtest"

// Apply applies every object in files or directories, as for InstallCRDs, in order. It uses
// server-side apply and takes over fields that others own. A namespaced object without a namespace
// goes to default. Install CRDs first.
func (c *Cluster) Apply(ctx context.Context, paths ...string) error {
	all, err := manifests.Read(paths...)
	if err != nil {
		return fmt.Errorf("envtest: %w", err)
	}
	return c.apply(ctx, all)
}

// ApplyYAML is Apply for the text of a manifest, which may have several documents.
func (c *Cluster) ApplyYAML(ctx context.Context, text []byte) error {
	all, err := manifests.Parse("manifest", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("envtest: %w", err)
	}
	return c.apply(ctx, all)
}

func (c *Cluster) apply(ctx context.Context, all []manifests.Manifest) error {
	if len(all) == 0 {
		return nil
	}
	groups, err := restmapper.GetAPIGroupResources(c.discovery)
	if err != nil {
		return c.checkAlive(fmt.Errorf("envtest: cannot discover the types: %w", err))
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, m := range all {
		gvk := m.Object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("envtest: %s: there is no type %s: %w; install its CRD first", m.Where, gvk, err)
		}
		var r dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := cmp.Or(m.Object.GetNamespace(), metav1.NamespaceDefault)
			r = c.dynamic.Resource(mapping.Resource).Namespace(namespace)
		}
		if err := c.applyOne(ctx, r, m); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) applyOne(ctx context.Context, r dynamic.ResourceInterface, m manifests.Manifest) error {
	_, err := r.Apply(ctx, m.Object.GetName(), m.Object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return c.checkAlive(fmt.Errorf("envtest: %s: cannot apply %s %s: %w", m.Where, m.Object.GetKind(), m.Object.GetName(), err))
	}
	return nil
}
