// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
)

// A lister of client-go and a handle share one list and one watch. This cache has no Backend, so
// the factory's client lists and watches: in a unit test, a fake clientset.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	clientset := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"}})

	c := cache.New(nil, cache.Options{})
	informers := factory.New(c, clientset)
	maps := informers.Core().V1().ConfigMaps()
	lister := maps.Lister()
	handle := cache.Adopt[*corev1.ConfigMap](c, maps.Informer(), cache.AdoptOptions{})

	done := make(chan error)
	go func() { done <- c.Run(ctx) }() // a manager does this for its own cache

	fmt.Println(informers.WaitForCacheSyncWithContext(ctx).Err)
	listed, err := lister.ConfigMaps("shop").Get("site")
	fmt.Println(listed.Name, err)
	read, err := handle.Get(ctx, types.NamespacedName{Namespace: "shop", Name: "site"})
	fmt.Println(read.Name, err)

	cancel()
	fmt.Println(<-done)
	// Output:
	// <nil>
	// site <nil>
	// site <nil>
	// <nil>
}
