// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func (s *Server) updateLocked(r *Request, t *table, old, u *unstructured.Unstructured) (*http.Response, error) {
	if v := u.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return r.Fail(http.StatusConflict, fmt.Sprintf("%s %q: the object has been modified; please apply your changes to the latest version and try again", t.Name, r.Name))
	}
	if uid := u.GetUID(); uid != "" && uid != old.GetUID() {
		return r.Fail(http.StatusConflict, fmt.Sprintf("%s %q: precondition failed: uid is %s, not %s", t.Name, r.Name, old.GetUID(), uid))
	}
	from, to := u, old.DeepCopy()
	if r.Subresource != "status" { // the reverse: everything but the status
		from, to = to, u
	}
	delete(to.Object, "status")
	if status, ok := from.Object["status"]; ok {
		to.Object["status"] = status
	}
	to.SetAPIVersion(old.GetAPIVersion())
	to.SetKind(old.GetKind())
	to.SetName(old.GetName())
	to.SetNamespace(old.GetNamespace())
	return r.answer(http.StatusOK, s.storeLocked(t, old, to))
}
