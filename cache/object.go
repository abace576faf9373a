// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// intern has the objects of a cache share those of their strings that many have in common. A decoder makes each anew: 16 bytes at
// least, for each label of each object.
func intern(o Object) {
	if _, ok := o.(*unstructured.Unstructured); ok {
		return // its accessors give out copies
	}
	o.SetNamespace(shared(o.GetNamespace()))
	internKeys(o.GetLabels())
	internKeys(o.GetAnnotations())
	owners := o.GetOwnerReferences()
	for n := range owners {
		owners[n].APIVersion, owners[n].Kind = shared(owners[n].APIVersion), shared(owners[n].Kind)
	}
}

// internKeys replaces the keys of a map: an assignment keeps the key that it is given.
func internKeys(m map[string]string) {
	for k, v := range m {
		m[shared(k)] = v
	}
}

func shared(s string) string {
	if s == "" {
		return s
	}
	return unique.Make(s).Value()
}

// Object is a pointer to an API type, such as *appsv1.Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}
