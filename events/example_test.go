// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
)

// Two calls of one series become one Event with a count. A manager has a recorder of its own, and
// runs it.
func ExampleRecorder() {
	server := sim.NewServer(sim.Resource{Group: "events.k8s.io", Version: "v1", Kind: "Event", Name: "events", Namespaced: true})
	defer server.Close()
	c, err := client.New(server.Config(), client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	rec := events.New(c, events.Options{Name: "website-operator"})
	site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "site"}}
	for range 2 {
		rec.Eventf(ctx, site, events.Warning, "Unreachable", "CheckSite", "%s does not answer", "https://shop.test")
	}
	if err := rec.Flush(ctx); err != nil { // Run sends without it
		fmt.Println(err)
		return
	}
	for event, err := range client.For[*eventsv1.Event](c).ListLive(ctx, client.ListOptions{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %s (%d times)\n", event.Reason, event.Note, event.Series.Count)
	}
	// Output: Unreachable: https://shop.test does not answer (2 times)
}

// An object whose Reconciles fail for ten minutes gets one event.
func ExampleFailing() {
	wire := func(r controller.Reconciler[types.NamespacedName], sites *cache.Handle[*corev1.ConfigMap], rec *events.Recorder) *controller.Controller[types.NamespacedName] {
		return controller.New("website", events.Failing(r, 10*time.Minute, sites, rec), controller.Options{})
	}
	_ = wire // with events.For(mgr, events.Options{})
}
