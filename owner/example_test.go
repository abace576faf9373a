// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/owner"
)

// The garbage collector deletes the ConfigMap together with its Deployment.
func ExampleOwner_SetController() {
	create := func(ctx context.Context, deployments *cache.Handle[*appsv1.Deployment], c *client.Client, web *appsv1.Deployment) error {
		page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name + "-page"}}
		if err := owner.Of(deployments, web).SetController(page); err != nil {
			return err
		}
		_, err := client.For[*corev1.ConfigMap](c).Create(ctx, page)
		return err
	}
	_ = create // in Reconcile
}

// An owner in another namespace is an error: the garbage collector would delete the object.
func ExampleInScheme() {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "page"}}
	fmt.Println(owner.InScheme(scheme.Scheme, web).Set(page))
	// Output: owner: the Deployment shop/web cannot own default/page in another namespace; use a finalizer to clean it up, and labels to find it
}
