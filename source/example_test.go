// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// A controller reconciles each ConfigMap in the cache, and each one that changes.
func ExampleKind() {
	api := sim.NewServer(sim.ConfigMaps) // an API server in memory
	api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}})
	c, err := client.New(api.Config(), client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	shared := cache.New(c, cache.Options{}) // with a manager: mgr.Cache()
	maps := cache.For[*corev1.ConfigMap](shared)

	ctx, stop := context.WithCancel(context.Background())
	reconcile := controller.Func[types.NamespacedName](func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
		fmt.Println("reconcile", key)
		stop()
		return controller.Result{}, nil
	})
	printer := controller.New("printer", reconcile, controller.Options{})
	printer.Watch(source.Kind(maps, handler.Self(), handler.ResourceVersionChanged))

	caching, stopCache := context.WithCancel(context.Background())
	cached := make(chan error)
	go func() { cached <- shared.Run(caching) }()
	fmt.Println("controller:", printer.Run(ctx))
	stopCache()
	fmt.Println("cache:", <-cached)
	// Output:
	// reconcile default/settings
	// controller: <nil>
	// cache: <nil>
}

// A Channel takes events of any type from the program, here orders, and maps them to keys of any
// type, here customers.
func ExampleNewChannel() {
	type order struct{ customer string }
	orders := source.NewChannel("orders", 100, func(_ context.Context, o order) ([]string, error) {
		return []string{o.customer}, nil
	})

	ctx, stop := context.WithCancel(context.Background())
	reconcile := controller.Func[string](func(_ context.Context, customer string) (controller.Result, error) {
		fmt.Println("reconcile", customer)
		stop()
		return controller.Result{}, nil
	})
	bills := controller.New("bills", reconcile, controller.Options{})
	bills.Watch(orders)

	fmt.Println("sent:", orders.Send(ctx, order{customer: "ada"}))
	fmt.Println("controller:", bills.Run(ctx))
	// Output:
	// sent: <nil>
	// reconcile ada
	// controller: <nil>
}
