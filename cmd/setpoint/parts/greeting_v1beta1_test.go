// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
	"github.com/setpoint-dev/setpoint/examples/template/api/v1beta1"
)

// TestGreetingV1beta1 reads and writes an object in both versions.
func TestGreetingV1beta1(t *testing.T) {
	withWebhooks(t, func(t *testing.T, c *client.Client) {
		ctx, stored, served := t.Context(), client.For[*v1alpha1.Greeting](c), client.For[*v1beta1.Greeting](c)
		key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
		sample := &v1alpha1.Greeting{}
		readSample(t, "config/samples/greeting.yaml", sample)
		if _, err := stored.Create(ctx, sample); err != nil {
			t.Fatal(err)
		}
		before, err := stored.GetLive(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		obj, err := served.GetLive(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		obj.Labels = map[string]string{"changed-in": "v1beta1"}
		if _, err := served.Update(ctx, obj); err != nil {
			t.Fatal(err)
		}
		after, err := stored.GetLive(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if after.Labels["changed-in"] != "v1beta1" {
			t.Errorf("the labels are %v after an update in v1beta1", after.Labels)
		}
		if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
			t.Errorf("the spec was %v, and is %v after an update in v1beta1", before.Spec, after.Spec)
		}
		if err := served.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	})
}
