// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package envtest

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

var (
	namespaces      = corev1.SchemeGroupVersion.WithResource("namespaces")
	serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
)

// Namespace creates a namespace for a test and returns its name: prefix, a dash and a random part.
// prefix has at most 57 lower-case letters, digits and dashes, and does not begin with a dash. With
// Options.Controllers, Namespace returns when pods can be created there. Stop removes it. An
// invalid prefix is an error.
func (c *Cluster) Namespace(ctx context.Context, prefix string) (string, error) {
	// The API server would shorten a long prefix instead of rejecting it.
	if wrong := validation.IsDNS1123Label(prefix + "-00000"); len(wrong) > 0 {
		return "", fmt.Errorf("envtest: the prefix %q makes no valid namespace name; use lower-case letters, digits and dashes, at most 57, the first no dash", prefix)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": prefix + "-"},
	}}
	made, err := c.dynamic.Resource(namespaces).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return "", c.checkAlive(fmt.Errorf("envtest: cannot create a namespace: %w", err))
	}
	name := made.GetName()
	if c.plane == nil {
		c.mu.Lock()
		c.namespaces = append(c.namespaces, name)
		c.mu.Unlock()
	} else if c.options.Controllers {
		if err := appears(ctx, c.dynamic.Resource(serviceAccounts).Namespace(name), "default"); err != nil {
			return name, c.checkAlive(fmt.Errorf("envtest: namespace %s gets no service account: %w", name, err))
		}
	}
	return name, nil
}

func (c *Cluster) deleteNamespaces() error {
	c.mu.Lock()
	names := c.namespaces
	c.namespaces = nil
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	var errs []error
	for _, name := range names {
		if err := c.dynamic.Resource(namespaces).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("envtest: cannot delete namespace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func appears(ctx context.Context, r dynamic.ResourceInterface, name string) error {
	return until(ctx, r, name, func(*unstructured.Unstructured) (bool, error) { return true, nil })
}

func until(ctx context.Context, r dynamic.ResourceInterface, name string, done func(*unstructured.Unstructured) (bool, error)) error {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	list, err := r.List(ctx, metav1.ListOptions{FieldSelector: one})
	if err != nil {
		return causeOf(ctx, err)
	}
	for i := range list.Items {
		if ok, err := done(&list.Items[i]); ok || err != nil {
			return err
		}
	}
	watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = one
		return r.Watch(ctx, o)
	}}
	_, err = watchtools.Until(ctx, list.GetResourceVersion(), watcher, func(e watch.Event) (bool, error) {
		object, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case e.Type == watch.Error:
			return false, apierrors.FromObject(e.Object)
		case !ok || e.Type == watch.Deleted:
			return false, nil
		}
		return done(object)
	})
	return causeOf(ctx, err)
}

func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
