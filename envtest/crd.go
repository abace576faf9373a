// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// InstallCRDs applies the CustomResourceDefinitions in the files, or in the directories' files (*.yaml, *.yml, *.json;
// not recursive), and returns when each is established and discovery has it, so that objects can be made at once. A watch
// may be refused for a second more ("storage is (re)initializing"); informers try again. Other objects are an error.
func (c *Cluster) InstallCRDs(ctx context.Context, paths ...string) error {
	manifests, err := readManifests(paths...)
	if err != nil {
		return err
	}
	for _, m := range manifests {
		if gvk := m.object.GroupVersionKind(); gvk.Group != crds.Group || gvk.Kind != "CustomResourceDefinition" {
			return fmt.Errorf("envtest: %s is a %s, not a CustomResourceDefinition: use Apply for it", m.where, gvk.Kind)
		}
	}
	for _, m := range manifests {
		if err := c.applyOne(ctx, c.dynamic.Resource(crds), m); err != nil {
			return err
		}
	}
	if len(manifests) == 0 {
		return nil
	}
	served := map[schema.GroupVersionResource]bool{}
	for _, m := range manifests {
		var last *unstructured.Unstructured
		err := until(ctx, c.dynamic.Resource(crds), m.object.GetName(), func(crd *unstructured.Unstructured) (bool, error) {
			last = crd
			return established(crd, served)
		})
		if err == nil && c.plane != nil {
			err = c.backdate(ctx, last)
		}
		if err != nil {
			return c.checkAlive(fmt.Errorf("envtest: %s: CRD %s is not established: %w", m.where, m.object.GetName(), err))
		}
	}
	return c.waitDiscovered(ctx, served)
}

// established says whether a CRD's types are served, and adds them to served.
func established(crd *unstructured.Unstructured, served map[schema.GroupVersionResource]bool) (bool, error) {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	done := false
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		switch {
		case condition["type"] == "NamesAccepted" && condition["status"] == "False":
			return false, fmt.Errorf("its names are taken by another: %v", condition["message"])
		case condition["type"] == "Established" && condition["status"] == "True":
			done = true
		}
	}
	if !done {
		return false, nil
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "status", "acceptedNames", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, item := range versions {
		version, _ := item.(map[string]any)
		if name, _ := version["name"].(string); version["served"] == true {
			served[schema.GroupVersionResource{Group: group, Version: name, Resource: plural}] = true
		}
	}
	return true, nil
}

// backdate says that a CRD has been established for a while. For the first two seconds kube-apiserver makes whoever
// creates an object wait for two more, in case another API server has not heard of the CRD yet. Ours is the only one.
func (c *Cluster) backdate(ctx context.Context, crd *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for i, item := range conditions {
		if condition, _ := item.(map[string]any); condition["type"] != "Established" {
			continue
		}
		path := fmt.Sprintf("/status/conditions/%d/", i)
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": path + "type", "value": "Established"},
			{"op": "replace", "path": path + "lastTransitionTime", "value": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)},
		})
		if err != nil {
			return err
		}
		_, err = c.dynamic.Resource(crds).Patch(ctx, crd.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}, "status")
		return err
	}
	return nil
}

// waitDiscovered asks discovery until it has the types. It cannot be watched, and is a moment behind.
func (c *Cluster) waitDiscovered(ctx context.Context, wanted map[schema.GroupVersionResource]bool) error {
	const between = 10 * time.Millisecond
	timer := time.NewTimer(between)
	defer timer.Stop()
	for {
		missing, err := c.missing(wanted)
		if err == nil && len(missing) == 0 {
			return nil
		}
		timer.Reset(between)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return c.checkAlive(fmt.Errorf("envtest: CRDs are established but not served: %v: %w", missing, context.Cause(ctx)))
		}
	}
}

// missing returns those of wanted that discovery does not have.
func (c *Cluster) missing(wanted map[schema.GroupVersionResource]bool) ([]schema.GroupVersionResource, error) {
	_, lists, err := c.discovery.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	found := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			found[gv.WithResource(r.Name)] = true
		}
	}
	var missing []schema.GroupVersionResource
	for gvr := range wanted {
		if !found[gvr] {
			missing = append(missing, gvr)
		}
	}
	return missing, nil
}
