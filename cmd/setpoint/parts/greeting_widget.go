// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/manager"

	"github.com/setpoint-dev/setpoint/examples/template/api/v1alpha1"
)

// +kubebuilder:rbac:groups=widgets.example.com,resources=widgets,verbs=get;list;watch;create;patch;delete

func greetingWidgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "widgets.example.com", Version: "v1gamma1", Kind: "Widget"}
}

// greetingWidgets declares the kind of the children.
func greetingWidgets(mgr *manager.Manager) children.Kind {
	return children.Of(cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: greetingWidgetKind()}))
}

// newGreetingWidget returns the fields of the Widget that the operator decides about: add its spec.
func newGreetingWidget(obj *v1alpha1.Greeting) client.ApplyConfiguration {
	child := &unstructured.Unstructured{}
	child.SetGroupVersionKind(greetingWidgetKind())
	child.SetName(obj.Name)
	child.SetNamespace(obj.Namespace)
	return client.UnstructuredConfiguration(child)
}
