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
	"github.com/setpoint-dev/setpoint/internal/testkit"
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
	custom{kind: "Region", plural: "realms", crd: "testdata/regions.yaml"}.run(t)
}

// TestRun_KindStatus: a kind of this name is recorded like others, not as metav1's.
func TestRun_KindStatus(t *testing.T) {
	custom{kind: "Status", plural: "statuses", crd: "testdata/statuses.yaml"}.run(t)
}

// custom is a cluster-scoped kind that a scenario creates and changes.
type custom struct{ kind, plural, crd string }

func (k custom) run(t *testing.T) {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: "sweep.setpoint.dev", Version: "v1", Kind: k.kind}
	kinds := runtime.NewScheme()
	testkit.NoError(t, scheme.AddToScheme(kinds))
	kinds.AddKnownTypeWithName(gvk, &region{})
	create := func(ctx context.Context, c *client.Client) error {
		if m, err := c.Mapping(ctx, gvk); err != nil || m.Resource.Resource != k.plural {
			t.Errorf("the mapping is %v, %v", m, err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		u.SetName("north")
		objects := client.ForKind[*unstructured.Unstructured](c, gvk)
		created, err := objects.Create(ctx, u)
		if err != nil {
			return client.IgnoreAlreadyExists(err)
		}
		created.SetLabels(map[string]string{"changed": "true"})
		_, err = objects.Update(ctx, created)
		return err
	}
	seen := map[int]bool{} // labels at a version
	see := func(s *sweep.State) error {
		for _, r := range sweep.List[*region](s) {
			seen[len(r.Labels)] = true
		}
		return nil
	}
	sweep.Run(t, sweep.Scenario{
		Scheme: kinds, CRDs: []string{k.crd}, Operator: works,
		Steps:      []sweep.Step{set("change", map[string]string{want: "1"}), {Name: "create", Do: create}},
		Invariants: []sweep.Invariant{{Name: "each version is recorded", Holds: see}},
	})
	if !seen[0] || !seen[1] {
		t.Errorf("the versions of %s have labels: %v, want one with none and one with one", k.kind, seen)
	}
}
