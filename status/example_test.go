// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/status"
)

// The summary names the conditions that decide it.
func ExampleSet_Summarize() {
	gauge := &Gauge{ObjectMeta: metav1.ObjectMeta{Name: "oil", Generation: 3}}
	s := status.For(gauge, gauge.Status.Conditions)
	s.True("Available", "AllReady", "3 of 3 sensors are ready")
	s.False("Filled", "Filling", "2 of 3 litres")
	s.Summarize(status.Ready, "Available", "Filled", status.Not(status.Stalled))
	for _, c := range s.Conditions() {
		fmt.Printf("%s=%s, %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	// Output:
	// Available=True, AllReady: 3 of 3 sensors are ready
	// Filled=False, Filling: 2 of 3 litres
	// Ready=False, Filling: Filled is False: 2 of 3 litres
}

// An update of the whole status is refused if the spec has changed since the object was read.
func ExampleUpdate() {
	report := func(ctx context.Context, c *client.Client, gauge *Gauge) error {
		s := status.For(gauge, gauge.Status.Conditions)
		s.Current("Full", "3 of 3 litres")
		gauge.Status.Conditions, gauge.Status.ObservedGeneration = s.Conditions(), gauge.Generation
		_, err := status.Update(ctx, client.For[*Gauge](c), s, gauge)
		return err
	}
	_ = report // in Reconcile
}

// A program waits until a change of the spec has taken effect.
func ExampleAwait() {
	ready := func(ctx context.Context, gauges *cache.Handle[*Gauge], key types.NamespacedName) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		_, err := status.Await(ctx, gauges, key, status.True(status.Ready))
		// For example: its status is of generation 3, not 4; Ready=True (Full: 3 of 3 litres)
		return err
	}
	_ = ready // with a cache that runs
}
