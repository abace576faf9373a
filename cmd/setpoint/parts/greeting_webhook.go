// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/webhook"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// greetingClass is the label with a default and a rule. It is an example: replace it by what your
// kind needs, and what neither defaults nor CEL rules in the CRD can express.
const greetingClass = "demo.example.com/class"

// addGreetingWebhooks adds the functions that the API server calls for new and changed objects of
// the kind Greeting.
func addGreetingWebhooks(hooks *webhook.Webhooks) {
	webhook.AddDefaulter(hooks, defaultGreeting, webhook.Registration{})
	webhook.AddValidator(hooks, webhook.Validator[*v1alpha1.Greeting]{
		Create: validateGreeting,
		Update: validateGreetingChange,
	}, webhook.Registration{})
}

// defaultGreeting sets what the user has left out.
func defaultGreeting(_ context.Context, obj *v1alpha1.Greeting) error {
	if obj.Labels[greetingClass] == "" {
		metav1.SetMetaDataLabel(&obj.ObjectMeta, greetingClass, "standard")
	}
	return nil
}

func validateGreeting(ctx context.Context, obj *v1alpha1.Greeting) error {
	return validateGreetingChange(ctx, &v1alpha1.Greeting{}, obj)
}

// validateGreetingChange validates only what changes. Otherwise a new rule also blocks the removal
// of a finalizer, and objects that break the rule can never be deleted.
func validateGreetingChange(_ context.Context, old, obj *v1alpha1.Greeting) error {
	var wrong field.ErrorList
	classes := []string{"premium", "standard"}
	if class := obj.Labels[greetingClass]; class != old.Labels[greetingClass] && !slices.Contains(classes, class) {
		wrong = append(wrong, field.NotSupported(field.NewPath("metadata", "labels").Key(greetingClass), class, classes))
	}
	return wrong.ToAggregate()
}
