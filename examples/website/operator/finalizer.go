// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"github.com/setpoint-dev/setpoint/client"
	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/finalizer"
)

// cleanup returns the steps before the deletion of a Website: those that the garbage collector does
// not do. It deletes the owned objects afterwards.
func (r *reconciler) cleanup() (*finalizer.Chain[*v1.Website], error) {
	return finalizer.NewChain(client.For[*v1.Website](r.client),
		finalizer.Step[*v1.Website]{Finalizer: v1.Finalizer, Run: r.unpublish})
}
