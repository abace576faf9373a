// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
)

// conditions reports whether the matchConditions of a webhook hold for a call of it.
func (p *Admission) conditions(a *attributes, i *invocation) (bool, error) {
	h := i.hook
	if h.holds == nil {
		if p.store.Schemas == nil {
			return false, request.StatusError(501, "NotImplemented", fmt.Sprintf(
				"sim: %s %s: webhook %q has matchConditions, which this server does not evaluate; use package envtest/sim/crd, or a real API server: package envtest starts one",
				a.request.HTTP.Method, a.request.HTTP.URL.Path, h.Name))
		}
		h.holds = p.store.Schemas.CompileConditions(h.MatchConditions, *h.FailurePolicy)
	}
	request, err := a.admissionRequest(i, "")
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	hold, err := h.holds(request)
	if err != nil {
		return false, apierrors.NewForbidden(a.table.GVR().GroupResource(), a.name, err)
	}
	return hold, nil
}
