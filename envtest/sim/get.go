// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// getLocked answers with o, which is at least as new as the resourceVersion parameter.
func (s *Server) getLocked(r *Request, o *unstructured.Unstructured) (*http.Response, error) {
	switch version, err := parseVersion(r.Query.Get("resourceVersion")); {
	case err != nil:
		return nil, err
	case version > s.version:
		return nil, s.tooLargeLocked(version, 1)
	}
	return r.answer(http.StatusOK, o)
}
