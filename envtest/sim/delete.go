// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func (s *Server) deleteLocked(r *Request, t *table, old, options *unstructured.Unstructured) (*http.Response, error) {
	for field, has := range map[string]string{"uid": string(old.GetUID()), "resourceVersion": old.GetResourceVersion()} {
		if want, ok, _ := unstructured.NestedString(options.Object, "preconditions", field); ok && want != has {
			return r.Fail(http.StatusConflict, fmt.Sprintf("%s %q: precondition failed: %s is %s, not %s", t.Name, r.Name, field, has, want))
		}
	}
	if len(old.GetFinalizers()) == 0 {
		s.removeLocked(t, old)
		return r.answer(http.StatusOK, &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: old.GetName(), Kind: t.Name, UID: old.GetUID()},
		})
	}
	if old.GetDeletionTimestamp() != nil {
		return r.answer(http.StatusOK, old)
	}
	u, now := old.DeepCopy(), metav1.NewTime(time.Now())
	u.SetDeletionTimestamp(&now)
	u.SetGeneration(old.GetGeneration() + 1)
	return r.answer(http.StatusOK, s.appendLocked(t, "MODIFIED", old, u))
}
