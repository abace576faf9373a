// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/manager"
)

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
}

// TestPorting_KeepsAConfigMapForADeployment runs what docs/controller-runtime.md shows.
func TestPorting_KeepsAConfigMapForADeployment(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	mgr := manager.New(cluster.Config(), manager.Options{Name: "porting"})
	cleaned := make(chan string, 10)
	newPorting(mgr, func(_ context.Context, d *appsv1.Deployment) error {
		cleaned <- d.Name
		return nil
	})
	pods := cache.For[*corev1.Pod](mgr.Cache())
	onNode, secrets := byNode(pods), onlyMetadata(mgr)
	defer run(t, mgr)()

	c, err := client.New(cluster.Config(), client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if served, err := unlessServed(ctx, c); err != nil || !served {
		t.Errorf("Deployments are served: %v, error: %v", served, err)
	}
	deployments, key := client.For[*appsv1.Deployment](c), types.NamespacedName{Namespace: "default", Name: "web"}
	d, err := deployments.Create(ctx, deployment())
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	owned, err := admin(t, cluster).GetLive(ctx, key)
	if err != nil || owned.Data["image"] != "web:1" || !metav1.IsControlledBy(owned, d) {
		t.Errorf("the ConfigMap is %v, error: %v", owned, err)
	}
	d, err = deployments.GetLive(ctx, key)
	if err != nil || !slices.Contains(d.Finalizers, cleanup) || len(d.Status.Conditions) != 1 {
		t.Errorf("the Deployment is %v, error: %v", d, err)
	}
	if _, err = mergeFrom(ctx, c, d, 2); err != nil {
		t.Error(err)
	}
	for _, wait := range []func(context.Context) error{pods.WaitForSync, secrets.WaitForSync} {
		if err := wait(ctx); err != nil {
			t.Error(err)
		}
	}
	if found, err := onNode(ctx, "node-1"); err != nil || len(found) > 0 {
		t.Errorf("the Pods are %v, error: %v", found, err)
	}
	if err := deployments.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	if name := <-cleaned; name != "web" {
		t.Errorf("cleaned up %s", name)
	}
}

// TestReading_DeclaresWhatItReads runs what docs/reading.md shows.
func TestReading_DeclaresWhatItReads(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	t.Setenv("WATCH_NAMESPACE", "default")
	mgr := manager.New(cluster.Config(), confined())
	r, c := newReading(mgr.Cache())
	cache.For[*corev1.ConfigMap](mgr.Cache())
	mgr.Add(c)
	metadata, small, decoded := withoutData(mgr.Cache()), withoutEnvironment(mgr.Cache()), decodedBackups(mgr.Cache(), corev1.SchemeGroupVersion.WithKind("PersistentVolume"))
	other := controller.New("other", controller.Func[types.NamespacedName](hourly), controller.Options{})
	everyReplica(mgr, other)
	stop := run(t, mgr)
	defer stop()
	urgent(other, types.NamespacedName{Namespace: "shop", Name: "none"})
	r.addTenant("news")
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	if names, err := r.names(ctx); err != nil || len(names) != 0 {
		t.Errorf("the Pods are %q, %v; want none", names, err)
	}
	if n, err := r.countOn(ctx, "node-1"); err != nil || n != 0 {
		t.Errorf("%d Pods, error: %v", n, err)
	}
	root := types.NamespacedName{Namespace: "default", Name: "kube-root-ca.crt"}
	if text, err := describe(ctx, mgr.Cache(), root, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("got %q, %v", text, err) // no controller manager makes it
	}
	all := manager.New(cluster.Config(), bytesOfAll())
	nodes := cache.ForScope[*unstructured.Unstructured](all.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("Node")})
	defer run(t, all)()
	if err := nodes.WaitForSync(ctx); err != nil || nodes.State().Storage != "packed" {
		t.Errorf("got %s, %v", nodes.State(), err)
	}
	for _, wait := range []func(context.Context) error{metadata.WaitForSync, small.WaitForSync, decoded.WaitForSync} {
		if err := wait(ctx); err != nil {
			t.Error(err)
		}
	}
}
