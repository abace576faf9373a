// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Gauge is a custom resource with conditions.
type Gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   GaugeSpec   `json:"spec,omitzero"`
	Status GaugeStatus `json:"status,omitzero"`
}

type GaugeSpec struct {
	Level int `json:"level"`
}

type GaugeStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (g *Gauge) DeepCopyObject() runtime.Object {
	c := *g
	g.DeepCopyInto(&c.ObjectMeta)
	c.Status.Conditions = slices.Clone(g.Status.Conditions)
	return &c
}

type GaugeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Gauge `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *GaugeList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

var gauges = schema.GroupVersion{Group: "status.setpoint.dev", Version: "v1"}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(gauges, &Gauge{}, &GaugeList{})
	metav1.AddToGroupVersion(s, gauges)
	return s
}

// configuration is an apply configuration as a generator would make it.
type configuration struct {
	metav1ac.TypeMetaApplyConfiguration
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Status statusConfiguration `json:"status"`
}

type statusConfiguration struct {
	ObservedGeneration int64                                   `json:"observedGeneration,omitempty"`
	Conditions         []*metav1ac.ConditionApplyConfiguration `json:"conditions,omitempty"`
}

func desired(g *Gauge, conditions []*metav1ac.ConditionApplyConfiguration) *configuration {
	return &configuration{
		*metav1ac.TypeMeta().WithKind("Gauge").WithAPIVersion(gauges.String()),
		metav1ac.ObjectMeta().WithName(g.Name).WithNamespace(g.Namespace),
		statusConfiguration{g.Generation, conditions},
	}
}
