// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Scheme has the built-in kinds. client-go's scheme.Scheme also has those that a program
// registers there.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err) // it is made by client-go
	}
	return s
})

// Custom reports whether a group has no built-in kinds.
func Custom(group string) bool {
	return !Scheme().IsGroupRegistered(group)
}
