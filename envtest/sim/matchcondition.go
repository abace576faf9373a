// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MatchConditions may be implemented by Schemas to evaluate the matchConditions of webhooks, as
// package envtest/sim/crd does. Without it, a request for which a webhook has some fails with 501.
type MatchConditions interface {
	// CompileConditions returns a function that reports whether all conditions of a webhook hold
	// for a request. Its error refuses the request. A wrong expression is like one that fails. The
	// failure policy is Fail or Ignore.
	CompileConditions([]admissionregistrationv1.MatchCondition, admissionregistrationv1.FailurePolicyType) func(*admissionv1.AdmissionRequest) (bool, error)
}

// conditionsLocked reports whether the matchConditions of a webhook hold for a call of it.
func (s *Server) conditionsLocked(a *attributes, i *invocation) (bool, error) {
	h := i.hook
	if h.holds == nil {
		compiler, ok := s.schemas.(MatchConditions)
		if !ok {
			return false, statusError(501, "NotImplemented", fmt.Sprintf(
				"sim: %s %s: webhook %q has matchConditions, which this server does not evaluate; use package envtest/sim/crd, or a real API server: package envtest starts one",
				a.request.http.Method, a.request.http.URL.Path, h.Name))
		}
		h.holds = compiler.CompileConditions(h.MatchConditions, *h.FailurePolicy)
	}
	request, err := a.admissionRequest(i, "")
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	hold, err := h.holds(request)
	if err != nil {
		return false, apierrors.NewForbidden(a.table.gvr().GroupResource(), a.name, err)
	}
	return hold, nil
}
