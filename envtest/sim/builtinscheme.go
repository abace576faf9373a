// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// builtInScheme has the built-in kinds. client-go's scheme.Scheme also has those that a program
// registers there.
var builtInScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		panic(err) // it is made by client-go
	}
	return s
})
