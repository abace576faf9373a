// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// conditionsLocked reports whether the matchConditions of a webhook hold for a call of it.
func (s *Server) conditionsLocked(a *attributes, i *invocation) (bool, error) {
	h := i.hook
	if h.holds == nil {
		if s.schemas == nil {
			return false, statusError(501, "NotImplemented", fmt.Sprintf(
				"sim: %s %s: webhook %q has matchConditions, which this server does not evaluate; use package envtest/sim/crd, or a real API server: package envtest starts one",
				a.request.http.Method, a.request.http.URL.Path, h.Name))
		}
		h.holds = s.schemas.CompileConditions(h.MatchConditions, *h.FailurePolicy)
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
