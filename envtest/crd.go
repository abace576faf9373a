// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/setpoint-dev/setpoint/internal/manifests"
)

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// InstallCRDs applies the CustomResourceDefinitions in files, YAML or JSON, or directories (*.yaml,
// *.yml, *.json; not recursive). It returns when each CRD is established, discovery lists it and
// its served versions can be watched. Objects of another kind are an error.
func (c *Cluster) InstallCRDs(ctx context.Context, paths ...string) error {
	all, err := manifests.Read(paths...)
	if err != nil {
		return fmt.Errorf("envtest: %w", err)
	}
	for _, m := range all {
		if gvk := m.Object.GroupVersionKind(); gvk.Group != crds.Group || gvk.Kind != "CustomResourceDefinition" {
			return fmt.Errorf("envtest: %s is a %s, not a CustomResourceDefinition; use Apply for it", m.Where, gvk.Kind)
		}
	}
	if err := c.applyCRDs(ctx, all); err != nil {
		return err
	}
	return c.waitServed(ctx, all)
}

func (c *Cluster) applyCRDs(ctx context.Context, all []manifests.Manifest) error {
	for _, m := range all {
		if err := c.applyOne(ctx, c.dynamic.Resource(crds), m); err != nil {
			return err
		}
	}
	return nil
}

// waitServed returns when the CustomResourceDefinitions are established and their served versions
// can be watched.
func (c *Cluster) waitServed(ctx context.Context, all []manifests.Manifest) error {
	if len(all) == 0 {
		return nil
	}
	served := map[schema.GroupVersionResource]bool{}
	for _, m := range all {
		var last *unstructured.Unstructured
		err := until(ctx, c.dynamic.Resource(crds), m.Object.GetName(), func(crd *unstructured.Unstructured) (bool, error) {
			last = crd
			return established(crd, served)
		})
		if err == nil && c.plane != nil {
			err = c.backdate(ctx, last)
		}
		if err != nil {
			return c.checkAlive(fmt.Errorf("envtest: %s: CRD %s is not established: %w", m.Where, m.Object.GetName(), err))
		}
	}
	if err := c.waitDiscovered(ctx, served); err != nil {
		return err
	}
	return c.waitWatchable(ctx, served)
}

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

// backdate sets the Established condition of a CRD to a minute ago. For two seconds after that
// time, kube-apiserver delays each create by two seconds, in case another API server has not seen
// the CRD.
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

// waitDiscovered polls discovery, which cannot be watched and lags a little.
func (c *Cluster) waitDiscovered(ctx context.Context, wanted map[schema.GroupVersionResource]bool) error {
	for {
		missing, err := c.missing(wanted)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if err := pause(ctx, betweenTries); err != nil {
			return c.checkAlive(fmt.Errorf("envtest: CRDs are established but not served: %v: %w", missing, err))
		}
	}
}

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

// waitWatchable returns when each type can be watched. At the first request, kube-apiserver rejects
// watches ("storage is (re)initializing") for a second, but answers lists. So it lists each type
// first.
func (c *Cluster) waitWatchable(ctx context.Context, types map[schema.GroupVersionResource]bool) error {
	for gvr := range types {
		_, _ = c.dynamic.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1})
	}
	for gvr := range types {
		if err := c.watchable(ctx, gvr); err != nil {
			return c.checkAlive(fmt.Errorf("envtest: CRDs are served but %s cannot be watched: %w", gvr.GroupResource(), err))
		}
	}
	return nil
}

func (c *Cluster) watchable(ctx context.Context, gvr schema.GroupVersionResource) error {
	for {
		// With version 0 the watch cache must answer, as for informers' watches, streamed or not.
		stream, err := c.discovery.RESTClient().Get().AbsPath("apis", gvr.Group, gvr.Version, gvr.Resource).
			Param("watch", "true").Param("resourceVersion", "0").MaxRetries(0).Stream(ctx)
		if err == nil {
			return stream.Close()
		}
		if apierrors.IsForbidden(err) {
			return nil
		}
		if !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
			return causeOf(ctx, err)
		}
		wait := betweenTries
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			wait = max(wait, time.Duration(seconds)*time.Second)
		}
		if ended := pause(ctx, wait); ended != nil {
			return fmt.Errorf("%w: %w", err, ended)
		}
	}
}

const betweenTries = 10 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
