// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *Server) listLocked(r *Request, t *table) (*http.Response, error) {
	if tooLarge, err := s.tooLargeLocked(r); tooLarge != nil {
		return tooLarge, err
	}
	items := []any{}
	for _, o := range t.sorted() {
		if matches(r, o) {
			items = append(items, r.form(o).Object)
		}
	}
	apiVersion, kind := t.gv().String(), t.Kind+"List"
	if r.metadataOnly() {
		apiVersion, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	return r.answer(http.StatusOK, map[string]any{
		"apiVersion": apiVersion, "kind": kind, "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)},
	})
}

// tooLargeLocked answers a request for a future version.
func (s *Server) tooLargeLocked(r *Request) (*http.Response, error) {
	if v, err := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64); err != nil || v <= s.version {
		return nil, nil //nolint:nilnil // it is not too large
	}
	return r.FailWith(metav1.Status{
		Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Message: "Too large resource version",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}, RetryAfterSeconds: 1},
	})
}
