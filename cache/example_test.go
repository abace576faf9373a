// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// shop returns a client of an in-memory API server with ConfigMaps in two namespaces.
func shop() *client.Client {
	api := sim.NewServer(sim.ConfigMaps)
	put := func(namespace, name, tier string, owner types.UID) types.UID {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"tier": tier}}}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "site", UID: owner}}
		}
		return api.Put(sim.ConfigMaps, m).GetUID()
	}
	site := put("shop", "site", "web", "")
	put("shop", "site-styles", "web", site)
	put("shop", "site-orders", "db", site)
	put("bank", "accounts", "db", "")
	c, err := client.New(api.Config(), client.Options{})
	if err != nil {
		panic(err)
	}
	return c
}

// running runs a cache until stop is called. A manager does this for its own cache.
func running(c *cache.Cache) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := c.Run(ctx); err != nil {
			panic(err)
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// sorted returns the sorted names of objects. Lists have no order.
func sorted[T cache.Object](list []T) (names []string) {
	for _, o := range list {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names
}

// A handle declares its kind. Reads wait for the initial list.
func Example() {
	ctx := context.Background()
	c := cache.New(shop(), cache.Options{}) // mgr.Cache() with a manager
	maps := cache.For[*corev1.ConfigMap](c)
	defer running(c)()

	site, err := maps.Get(ctx, types.NamespacedName{Namespace: "shop", Name: "site"})
	fmt.Println(site.Name, err)

	_, err = maps.Get(ctx, types.NamespacedName{Namespace: "shop", Name: "cart"})
	fmt.Println(err, apierrors.IsNotFound(err))

	web, err := maps.List(ctx, cache.ListOptions{Namespace: "shop", Labels: labels.SelectorFromSet(labels.Set{"tier": "web"})})
	fmt.Println(sorted(web), err)

	all := 0
	for _, err := range maps.All(ctx, cache.ListOptions{}) {
		if err != nil {
			panic(err)
		}
		all++
	}
	fmt.Println(all)

	parts, err := client.Collect(maps.Owned(ctx, site.UID, cache.ListOptions{}))
	fmt.Println(sorted(parts), err)
	// Output:
	// site <nil>
	// configmaps "cart" not found true
	// [site site-styles] <nil>
	// 4
	// [site-orders site-styles] <nil>
}

// A scope of namespaces may change at any time. Each namespace has its own list and watch.
func ExampleForScope() {
	ctx := context.Background()
	c := cache.New(shop(), cache.Options{})
	tenants := cache.NewSet("shop")
	databases := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{
		Namespaces: tenants,
		Labels:     labels.SelectorFromSet(labels.Set{"tier": "db"}),
	})
	defer running(c)()

	list, err := databases.List(ctx, cache.ListOptions{})
	fmt.Println(sorted(list), err)

	tenants.Add("bank")
	list, err = databases.List(ctx, cache.ListOptions{}) // waits for the list of the new namespace
	fmt.Println(sorted(list), err)

	tenants.Remove("shop")
	_, err = databases.Get(ctx, types.NamespacedName{Namespace: "shop", Name: "site-orders"})
	fmt.Println(err != nil, apierrors.IsNotFound(err)) // outside the scope is not NotFound
	// Output:
	// [site-orders] <nil>
	// [accounts site-orders] <nil>
	// true false
}

// An index finds objects by computed values.
func ExampleNewIndex() {
	ctx := context.Background()
	c := cache.New(shop(), cache.Options{})
	byTier := cache.NewIndex(cache.For[*corev1.ConfigMap](c), "tier", func(m *corev1.ConfigMap) []string {
		return []string{m.Labels["tier"]}
	})
	defer running(c)()

	list, err := byTier.List(ctx, "db", cache.ListOptions{})
	fmt.Println(sorted(list), err)
	// Output: [accounts site-orders] <nil>
}

// A shared view returns the cached objects themselves. Do not change them.
func ExampleHandle_Shared() {
	ctx := context.Background()
	c := cache.New(shop(), cache.Options{})
	maps := cache.For[*corev1.ConfigMap](c)
	defer running(c)()

	tiers := map[string]int{}
	for m, err := range maps.Shared().All(ctx, cache.ListOptions{}) {
		if err != nil {
			panic(err)
		}
		tiers[m.Labels["tier"]]++
	}
	fmt.Println(tiers)
	// Output: map[db:2 web:2]
}

// A subscription calls an event handler without a controller.
func ExampleHandle_Subscribe() {
	ctx := context.Background()
	c := cache.New(shop(), cache.Options{})
	maps := cache.ForScope[*corev1.ConfigMap](c, cache.Scope{Namespaces: cache.NewSet("bank")})
	defer running(c)()

	events, err := maps.Subscribe(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { fmt.Println("add", obj.(*corev1.ConfigMap).Name) },
	})
	if err != nil {
		panic(err)
	}
	defer events.Close()
	fmt.Println(events.WaitForSync(ctx))
	// Output:
	// add accounts
	// <nil>
}
