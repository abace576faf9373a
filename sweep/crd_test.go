// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/sweep"
)

type region struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

func (r *region) DeepCopyObject() runtime.Object {
	return &region{r.TypeMeta, *r.DeepCopy()}
}

// TestRun_ScopeOfCRD: the simulated API server serves a kind with the scope and the plural of its
// CRD, although the scheme has it, too.
func TestRun_ScopeOfCRD(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "sweep.setpoint.dev", Version: "v1", Kind: "Region"}
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	kinds.AddKnownTypeWithName(gvk, &region{})
	create := func(ctx context.Context, c *client.Client) error {
		if m, err := c.Mapping(ctx, gvk); err != nil || m.Resource.Resource != "realms" {
			t.Errorf("the mapping is %v, %v", m, err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		u.SetName("north")
		_, err := client.ForKind[*unstructured.Unstructured](c, gvk).Create(ctx, u)
		return client.IgnoreAlreadyExists(err)
	}
	sweep.Run(t, sweep.Scenario{
		Scheme: kinds, CRDs: []string{"testdata/regions.yaml"}, Operator: works,
		Steps: []sweep.Step{set("change", map[string]string{want: "1"}), {Name: "create", Do: create}},
	})
}
