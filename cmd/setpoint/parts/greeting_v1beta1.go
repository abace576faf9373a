// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"github.com/setpoint-dev/setpoint/webhook"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
	"github.com/setpoint-dev/setpoint/examples/template/api/v1beta1"
)

// The webhooks' certificates are also in the conversion of the CRD.
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=greetings.demo.example.com,verbs=get;list;watch;patch

// addGreetingV1beta1 adds version v1beta1. The controller uses v1alpha1, and the API server stores
// it: releases before this one know only that version. See "Finish a switch of the stored version"
// in the framework's guide to webhooks.
func addGreetingV1beta1(hooks *webhook.Webhooks) {
	webhook.AddConversion(hooks, greetingFromV1beta1, greetingToV1beta1)
}

// greetingFromV1beta1 and greetingToV1beta1 fill an object whose metadata is set. Keep values for
// which the other version has no field in an annotation.
func greetingFromV1beta1(from *v1beta1.Greeting, to *v1alpha1.Greeting) error {
	to.Spec = v1alpha1.GreetingSpec(from.Spec)
	to.Status = v1alpha1.GreetingStatus(from.Status)
	return nil
}

func greetingToV1beta1(from *v1alpha1.Greeting, to *v1beta1.Greeting) error {
	to.Spec = v1beta1.GreetingSpec(from.Spec)
	to.Status = v1beta1.GreetingStatus(from.Status)
	return nil
}
