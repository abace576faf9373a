// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
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

// DeepCopyObject implements runtime.Object.
func (l *Lamp) DeepCopyObject() runtime.Object {
	return &Lamp{TypeMeta: l.TypeMeta, ObjectMeta: *l.DeepCopy(), Spec: l.Spec}
}

// DeepCopyObject implements runtime.Object.
func (l *AlphaLamp) DeepCopyObject() runtime.Object {
	return &AlphaLamp{TypeMeta: l.TypeMeta, ObjectMeta: *l.DeepCopy(), Spec: l.Spec}
}

// lampScheme returns a scheme with both versions and the kinds of Kubernetes.
func lampScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	group := schema.GroupVersion{Group: lamps.Group, Version: "v1"}
	s.AddKnownTypeWithName(group.WithKind(lamps.Kind), &Lamp{})
	s.AddKnownTypeWithName(lamps, &AlphaLamp{})
	return s, scheme.AddToScheme(s)
}

// validate is the validator of lamps.
func validate(_ context.Context, l *Lamp) error {
	if l.Spec.N < 0 {
		return errors.New("spec.n is negative")
	}
	return nil
}

func fromAlpha(from *AlphaLamp, to *Lamp) error {
	to.Spec = from.Spec
	return nil
}

func toAlpha(from *Lamp, to *AlphaLamp) error {
	to.Spec = from.Spec
	return nil
}
