// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
)

// get answers with o, which is at least as new as the resourceVersion parameter.
func (a *API) get(r *request.Request, o *unstructured.Unstructured) (*http.Response, error) {
	switch version, err := parseVersion(r.Query.Get("resourceVersion")); {
	case err != nil:
		return nil, err
	case version > a.store.Version:
		return nil, a.tooLarge(version, 1)
	}
	return r.Answer(http.StatusOK, o)
}
