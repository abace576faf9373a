// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// TestGreetingWebhooks uses the defaults and the validation as kubectl does.
func TestGreetingWebhooks(t *testing.T) {
	withWebhooks(t, func(t *testing.T, c *client.Client) {
		ctx, objects := t.Context(), client.For[*v1alpha1.Greeting](c)
		key := types.NamespacedName{Namespace: "default", Name: "greeting-sample"}
		sample := &v1alpha1.Greeting{}
		readSample(t, "config/samples/greeting.yaml", sample)
		obj, err := objects.Create(ctx, sample)
		if err != nil {
			t.Fatal(err)
		}
		if class := obj.Labels[greetingClass]; class != "standard" {
			t.Errorf("the class is %q by default, want standard", class)
		}
		change := func(class string) error {
			patch := []byte(`{"metadata":{"labels":{"` + greetingClass + `":"` + class + `"}}}`)
			_, err := objects.Patch(ctx, key, types.MergePatchType, patch)
			return err
		}
		if err := change("premium"); err != nil {
			t.Errorf("the class premium is rejected: %v", err)
		}
		if err := change("other"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), greetingClass) {
			t.Errorf("for the class other, the error is %v", err)
		}
		if err := objects.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	})
}
