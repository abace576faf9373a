// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func (s *Server) createLocked(r *Request, t *table, u *unstructured.Unstructured) (*http.Response, error) {
	if u.GetName() == "" {
		u.SetName(r.Name)
	}
	if u.GetName() == "" && u.GetGenerateName() != "" {
		u.SetName(u.GetGenerateName() + strconv.FormatInt(s.version, 10))
	}
	u.SetNamespace(r.Namespace)
	if u.GetName() == "" || t.Namespaced && u.GetNamespace() == "" {
		return r.Fail(http.StatusUnprocessableEntity, "metadata.name and, for a namespaced kind, the namespace are required")
	}
	if t.objects[keyOf(u)] != nil {
		return r.FailWith(metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists, Message: fmt.Sprintf("%s %q already exists", t.Name, u.GetName())})
	}
	u.SetAPIVersion(t.gv().String())
	u.SetKind(t.Kind)
	u.SetUID("")
	delete(u.Object, "status")
	return r.answer(http.StatusCreated, s.storeLocked(t, nil, u))
}
