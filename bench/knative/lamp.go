// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"knative.dev/pkg/apis"
)

// Lamp is the stored version of the load's objects.
type Lamp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LampSpec `json:"spec"`
}

// AlphaLamp is the version that the load reads and writes.
type AlphaLamp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LampSpec `json:"spec"`
}

// LampSpec is the same in both versions.
type LampSpec struct {
	N    int64  `json:"n"`
	Text string `json:"text"`
}

func kind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "rotation.example.com", Version: version, Kind: "Lamp"}
}

// SetDefaults implements apis.Defaultable.
func (l *Lamp) SetDefaults(context.Context) {}

// Validate implements apis.Validatable.
func (l *Lamp) Validate(context.Context) *apis.FieldError {
	if l.Spec.N < 0 {
		return apis.ErrInvalidValue(l.Spec.N, "n").ViaField("spec")
	}
	return nil
}

// DeepCopyObject implements runtime.Object.
func (l *Lamp) DeepCopyObject() runtime.Object {
	return &Lamp{TypeMeta: l.TypeMeta, ObjectMeta: *l.DeepCopy(), Spec: l.Spec}
}

// ConvertTo implements apis.Convertible.
func (l *Lamp) ConvertTo(_ context.Context, to apis.Convertible) error {
	alpha, ok := to.(*AlphaLamp)
	if !ok {
		return fmt.Errorf("no conversion to %T", to)
	}
	alpha.ObjectMeta, alpha.Spec = l.ObjectMeta, l.Spec
	return nil
}

// ConvertFrom implements apis.Convertible.
func (l *Lamp) ConvertFrom(_ context.Context, from apis.Convertible) error {
	alpha, ok := from.(*AlphaLamp)
	if !ok {
		return fmt.Errorf("no conversion from %T", from)
	}
	l.ObjectMeta, l.Spec = alpha.ObjectMeta, alpha.Spec
	return nil
}

// DeepCopyObject implements runtime.Object.
func (l *AlphaLamp) DeepCopyObject() runtime.Object {
	return &AlphaLamp{TypeMeta: l.TypeMeta, ObjectMeta: *l.DeepCopy(), Spec: l.Spec}
}

// ConvertTo implements apis.Convertible. The hub converts.
func (l *AlphaLamp) ConvertTo(_ context.Context, to apis.Convertible) error {
	return fmt.Errorf("no conversion to %T", to)
}

// ConvertFrom implements apis.Convertible. The hub converts.
func (l *AlphaLamp) ConvertFrom(_ context.Context, from apis.Convertible) error {
	return fmt.Errorf("no conversion from %T", from)
}
