// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// confined returns the options of an operator for the namespaces of WATCH_NAMESPACE.
func confined() manager.Options {
	return manager.Options{
		Name:  "confined",
		Cache: cache.Options{Namespaces: cache.ParseNamespaces(os.Getenv("WATCH_NAMESPACE"))},
	}
}

// describe reads an object of any kind that has a handle.
func describe(ctx context.Context, c *cache.Cache, name types.NamespacedName, obj cache.Object) (string, error) {
	if err := c.Get(ctx, name, obj); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s, version %s", obj.GetObjectKind().GroupVersionKind().Kind, name, obj.GetResourceVersion()), nil
}

// reading has what docs/reading.md shows.
type reading struct {
	pods    *cache.Handle[*corev1.Pod]
	secrets *cache.Handle[*corev1.Secret]
	byNode  *cache.Index[*corev1.Pod]
	tenants *cache.Set[string]
}

func newReading(c *cache.Cache) (*reading, *controller.Controller[types.NamespacedName]) {
	tenants := cache.NewSet("shop", "blog")
	r := &reading{
		pods:    cache.ForScope[*corev1.Pod](c, cache.Scope{Namespaces: tenants, Labels: labels.SelectorFromSet(labels.Set{"app": "web"})}),
		secrets: cache.ForScope[*corev1.Secret](c, cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "shop", Name: "tls"})}),
		tenants: tenants,
	}
	r.byNode = cache.NewIndex(r.pods, "node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }, "spec")

	ctl := controller.New("reading", r, controller.Options{})
	ctl.Watch(source.Kind(r.pods, handler.Self())) // its events make keys due
	ctl.Reads(r.secrets)                           // it is read, and makes nothing due
	return r, ctl
}

func (r *reading) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	pod, err := r.pods.Get(ctx, key) // a copy
	if err != nil {
		return controller.Result{}, err
	}
	for neighbor, err := range r.byNode.All(ctx, pod.Spec.NodeName, cache.ListOptions{}) {
		if err != nil {
			return controller.Result{}, err
		}
		_ = neighbor
	}
	return controller.Result{}, nil
}

// countOn counts the Pods on a node without copying them.
func (r *reading) countOn(ctx context.Context, node string) (n int, err error) {
	for pod, err := range r.pods.Shared().All(ctx, cache.ListOptions{}) {
		if err != nil {
			return 0, err
		}
		if pod.Spec.NodeName == node { // read only: other goroutines read the same object
			n++
		}
	}
	return n, nil
}

// names shows all Pods that can be decoded.
func (r *reading) names(ctx context.Context) (names []string, err error) {
	pods, err := client.Collect(r.pods.All(ctx, cache.ListOptions{}))
	var undecodable *cache.UndecodableError
	if err != nil && !errors.As(err, &undecodable) {
		return nil, err
	}
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names, nil
}

// addTenant starts to list and watch one more namespace, while the program runs.
func (r *reading) addTenant(namespace string) { r.tenants.Add(namespace) }

// withoutData keeps the metadata of Secrets, and never their content.
func withoutData(c *cache.Cache) *cache.Handle[*metav1.PartialObjectMetadata] {
	return cache.ForScope[*metav1.PartialObjectMetadata](c, cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Secret")})
}

// decodedBackups keeps Go objects of a kind whose objects are often all read.
func decodedBackups(c *cache.Cache, backups schema.GroupVersionKind) *cache.Handle[*unstructured.Unstructured] {
	return cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: backups, Storage: cache.Decoded})
}

// bytesOfAll returns the options of an operator that keeps objects of all kinds as bytes.
func bytesOfAll() manager.Options {
	return manager.Options{
		Name:  "packed",
		Cache: cache.Options{Storage: cache.Packed},
	}
}

// withoutEnvironment keeps Pods without a part that this program does not read.
func withoutEnvironment(c *cache.Cache) *cache.Handle[*corev1.Pod] {
	small := cache.NewTransform("without environment", func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Env = nil
		}
	})
	return cache.ForScope[*corev1.Pod](c, cache.Scope{Transform: small})
}
