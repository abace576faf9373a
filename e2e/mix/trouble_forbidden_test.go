// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// forbidden refuses the lists and watches of Secrets, in both forms.
type forbidden struct{}

func (forbidden) name() string { return "forbidden" }
func (forbidden) line() string { return "an informer is failing kind=Secret.v1" }

func (forbidden) strike(w *world, r *rand.Rand) int {
	return w.rule(r, fault.Rule{
		Match:  fault.Match{Verbs: []string{"list", "watch"}, Resources: []string{"secrets"}},
		Refuse: apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("not today")),
	}, between(r, 30*time.Second, 3*time.Minute), true)
}
