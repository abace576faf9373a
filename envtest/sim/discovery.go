// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *Server) discoverLocked(r *Request) (*http.Response, error) {
	list := &metav1.APIResourceList{GroupVersion: r.Resource.GroupVersion().String()}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}
	for _, t := range s.tables {
		if t.gv() == r.Resource.GroupVersion() {
			verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
			list.APIResources = append(list.APIResources,
				metav1.APIResource{Name: t.Name, Kind: t.Kind, Namespaced: t.Namespaced, Verbs: verbs},
				metav1.APIResource{Name: t.Name + "/status", Kind: t.Kind, Namespaced: t.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	if len(list.APIResources) == 0 {
		return r.Fail(http.StatusNotFound, "the server could not find the requested resource")
	}
	return r.answer(http.StatusOK, list)
}
