// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// scalePaths are the fields of a kind with a scale subresource, such as ".spec.replicas". Built-in
// kinds have none.
type scalePaths struct{ specReplicas, statusReplicas, labelSelector string }

func (s *Server) scaleLocked(r *Request, _ *table, _ *unstructured.Unstructured) (*http.Response, error) {
	return nil, unsupported(r)
}
