// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package unittest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Preview is a custom resource: an image that runs for a limited time. In a project of your own,
// controller-gen makes its DeepCopyObject and its CRD.
type Preview struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PreviewSpec   `json:"spec"`
	Status PreviewStatus `json:"status,omitempty"`
}

// PreviewSpec is the desired state.
type PreviewSpec struct {
	Image    string          `json:"image"`
	Lifetime metav1.Duration `json:"lifetime"` // 0: no limit
}

// PreviewStatus is the observed state.
type PreviewStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PreviewList is a list of previews.
type PreviewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Preview `json:"items"`
}

// DeepCopyInto copies p to c.
func (p *Preview) DeepCopyInto(c *Preview) {
	*c = *p
	p.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Status.Conditions = nil
	for _, condition := range p.Status.Conditions {
		c.Status.Conditions = append(c.Status.Conditions, *condition.DeepCopy())
	}
}

// DeepCopyObject implements runtime.Object.
func (p *Preview) DeepCopyObject() runtime.Object {
	c := &Preview{}
	p.DeepCopyInto(c)
	return c
}

// DeepCopyInto copies l to c.
func (l *PreviewList) DeepCopyInto(c *PreviewList) {
	*c = *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]Preview, len(l.Items))
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&c.Items[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (l *PreviewList) DeepCopyObject() runtime.Object {
	c := &PreviewList{}
	l.DeepCopyInto(c)
	return c
}

// NewScheme returns a scheme with the built-in kinds and Preview.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s) // never fails: the built-in kinds have no conflicts
	s.AddKnownTypes(groupVersion, &Preview{}, &PreviewList{})
	metav1.AddToGroupVersion(s, groupVersion)
	return s
}
