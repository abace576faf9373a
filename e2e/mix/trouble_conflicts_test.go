// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// conflicts refuses updates and patches with 409.
type conflicts struct{}

func (conflicts) name() string { return "conflicts" }
func (conflicts) line() string { return "" }

func (conflicts) strike(w *world, r *rand.Rand) int {
	f := w.plane.add(fault.Rule{
		Match: fault.Match{Verbs: []string{"update", "patch", "create"}, Resources: []string{"boards", "configmaps", "secrets"}, Func: w.ofReplica}, Times: 1 + r.IntN(5),
		Refuse: apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, "any", nil),
	})
	w.set("conflict", r.IntN(1<<20))
	w.plane.pause(between(r, 30*time.Second, 2*time.Minute))
	defer f.Remove()
	return f.Hits()
}
