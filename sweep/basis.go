// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// basis is what exists on a control plane before each run.
type basis struct {
	api    dynamic.Interface
	leases map[types.UID]bool
}

var leaseKind = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// newBasis creates the objects of a scenario.
func newBasis(ctx context.Context, cfg *rest.Config, s *Scenario) (basis, error) {
	api, err := newDynamic(cfg)
	if err != nil {
		return basis{}, err
	}
	b := basis{api: api, leases: map[types.UID]bool{}}
	if err := b.create(ctx, cfg, s); err != nil {
		return basis{}, err
	}
	list, err := api.Resource(leaseKind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return basis{}, err
	}
	for i := range list.Items {
		b.leases[list.Items[i].GetUID()] = true
	}
	return b, nil
}

func (b basis) create(ctx context.Context, cfg *rest.Config, s *Scenario) error {
	if len(s.Objects) == 0 {
		return nil
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, obj := range s.Objects {
		u, of, err := toCreate(obj, s.Scheme, mapper)
		if err == nil {
			_, err = b.of(of, u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("Scenario.Objects: %T: %w", obj, err)
		}
	}
	return nil
}

func toCreate(obj runtime.Object, scheme *runtime.Scheme, mapper meta.RESTMapper) (*unstructured.Unstructured, schema.GroupVersionResource, error) {
	none := schema.GroupVersionResource{}
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return nil, none, err
	}
	mapping, err := mapper.RESTMapping(kinds[0].GroupKind(), kinds[0].Version)
	if err != nil {
		return nil, none, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, none, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kinds[0])
	return u, mapping.Resource, nil
}

func (b basis) of(of schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return b.api.Resource(of)
	}
	return b.api.Resource(of).Namespace(namespace)
}

// version returns the newest version.
func (b basis) version(ctx context.Context) (string, error) {
	list, err := b.api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	return list.GetResourceVersion(), nil
}

// age brings an API server to later versions.
func age(ctx context.Context, cfg *rest.Config) error {
	api, err := newDynamic(cfg)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	u.SetName("sweep")
	maps := api.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	for i := 0; i < older && err == nil; i += 2 {
		_, err = maps.Create(ctx, u, metav1.CreateOptions{})
		err = errors.Join(err, maps.Delete(ctx, u.GetName(), metav1.DeleteOptions{}))
	}
	return err
}

// older is by how many versions the second run without faults begins later: what an operator takes
// from a version then differs.
const older = 1000

// deleteLeases deletes Leases, by namespace/name.
func (b basis) deleteLeases(ctx context.Context, names []string) {
	for _, n := range names {
		namespace, name, _ := strings.Cut(n, "/")
		_ = b.of(leaseKind, namespace).Delete(ctx, name, metav1.DeleteOptions{}) // else it expires
	}
}

// restore brings the kinds of a run back to what was before, and deletes its Leases.
func (b basis) restore(ctx context.Context, before map[schema.GroupVersionResource][]unstructured.Unstructured) error {
	var errs []error
	list, err := b.api.Resource(leaseKind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if l := &list.Items[i]; !b.leases[l.GetUID()] {
			errs = append(errs, ignoreGone(b.of(leaseKind, l.GetNamespace()).Delete(ctx, l.GetName(), metav1.DeleteOptions{})))
		}
	}
	for of, objects := range before {
		errs = append(errs, b.restoreKind(ctx, of, objects))
	}
	return errors.Join(errs...)
}

func (b basis) restoreKind(ctx context.Context, of schema.GroupVersionResource, before []unstructured.Unstructured) error {
	wanted := map[string]*unstructured.Unstructured{}
	for i := range before {
		wanted[before[i].GetNamespace()+"/"+before[i].GetName()] = &before[i]
	}
	for {
		list, err := b.api.Resource(of).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found, done := map[string]bool{}, true
		for i := range list.Items {
			o := &list.Items[i]
			key := o.GetNamespace() + "/" + o.GetName()
			found[key] = true
			ok, err := b.restoreObject(ctx, of, o, wanted[key])
			if err != nil {
				return err
			}
			done = done && ok
		}
		for key, o := range wanted {
			if found[key] {
				continue
			}
			done = false
			o = o.DeepCopy()
			o.SetResourceVersion("")
			o.SetUID("")
			if _, err := b.of(of, o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", of.Resource, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// restoreObject deletes an object that was not there before, or updates it. It returns true if it
// is as before.
func (b basis) restoreObject(ctx context.Context, of schema.GroupVersionResource, o, before *unstructured.Unstructured) (ok bool, err error) {
	api := b.of(of, o.GetNamespace())
	switch {
	case before == nil:
		if len(o.GetFinalizers()) > 0 {
			if _, err := api.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
				return false, ignoreGone(err)
			}
		}
		now := int64(0)
		return false, ignoreGone(api.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now}))
	case sameObject(o, before):
		return true, nil
	}
	next := before.DeepCopy()
	next.SetUID(o.GetUID())
	next.SetResourceVersion(o.GetResourceVersion())
	_, err = api.Update(ctx, next, metav1.UpdateOptions{})
	return false, err
}

// sameObject compares without what the API server counts.
func sameObject(a, b *unstructured.Unstructured) bool {
	text := func(o *unstructured.Unstructured) []byte {
		o = o.DeepCopy()
		for _, f := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
			unstructured.RemoveNestedField(o.Object, "metadata", f)
		}
		unstructured.RemoveNestedField(o.Object, "status")
		t, _ := o.MarshalJSON() // it came as JSON
		return t
	}
	return bytes.Equal(text(a), text(b))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
