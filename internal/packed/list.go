// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// List is a list of packed objects.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []runtime.Object // *Object
}

// DeepCopyObject returns a copy of the list with the same objects, which never change.
func (l *List) DeepCopyObject() runtime.Object {
	c := &List{TypeMeta: l.TypeMeta, Items: slices.Clone(l.Items)}
	l.DeepCopyInto(&c.ListMeta)
	return c
}
