// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestValidate_NamesDependOnTheKind(t *testing.T) {
	for _, c := range []struct {
		resource kinds.Resource
		name     string
		valid    bool
	}{
		{kinds.Namespaces, "a", true},
		{kinds.Namespaces, "a.b", false},
		{kinds.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "clusterroles"}, "a:B", true},
		{kinds.Resource{Group: "example.com", Version: "v1", Kind: "Lamp", Name: "lamps"}, "a.b", true},
		{kinds.Resource{Group: "example.com", Version: "v1", Kind: "Lamp", Name: "lamps"}, "a:B", false},
	} {
		d := kinds.Define(c.resource)
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(c.resource.GVK())
		u.SetName(c.name)
		errs := Validate(&d, u, nil, "")
		testkit.Equal(t, len(errs) == 0, c.valid, c.resource.Kind, c.name, errs)
	}
}
