// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestK6_AFieldThatIsNotStored is an error that names it, in each Reconcile and without a further
// write. With KeepDrift it is reported once, because others may have removed it.
func TestK6_AFieldThatIsNotStored(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		d := rollout("one", "x").WithStatus(appsac.DeploymentStatus().WithReplicas(3))
		const want = "Deployment default/one: the API server does not store .status.replicas; leave the field out"
		w.want("a", d, configMap("two", "1"))
		n := w.writes()
		w.touch("a")
		testkit.ErrorContains(t, w.err("a"), want)
		testkit.Equal(t, w.writes()-n, 0)
		testkit.Equal(t, w.value("two"), "1")
	})
}

// TestReconcile_AKindWithoutApply: the error names the child and the remedy.
func TestReconcile_AKindWithoutApply(t *testing.T) {
	for _, refusal := range []*apierrors.StatusError{
		apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "services"}, "patch"),
		{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType}},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			w.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch"}, Resources: []string{"services"}}, Refuse: refusal})
			w.want("a", service("one"), configMap("two", "1"))
			err := w.err("a")
			if err == nil || !strings.HasPrefix(err.Error(), "Service default/one: ") || !strings.HasSuffix(err.Error(), "; this kind has no server-side apply: write it with client.Handle") {
				t.Errorf("error %v", err)
			}
			testkit.Equal(t, w.value("two"), "1", "the other child is missing")
		})
	}
}
