// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
)

// unkeyed has the kinds for which an apply lost a condition. A dry run then comes first, so that
// two owners do not undo each other's writes for ever.
var unkeyed sync.Map // by Go type, version and kind

// applied returns an error if the API server does not keep conditions by type: if the answer to an
// apply lacks one of others, or has one of s twice.
func (s *Set) applied(stored client.Object, others []string) error {
	now, err := stateOf(stored)
	if err != nil {
		return nil //nolint:nilerr // these conditions are not those of the Set
	}
	count := map[string]int{}
	for _, c := range now.conditions {
		count[c.Type]++
	}
	wrong := func(name, how string) error {
		return controller.Terminal(fmt.Errorf("status of %s: the condition %s %s, because the API server does not keep conditions by their types; "+
			"in the CRD, add x-kubernetes-list-type: map and x-kubernetes-list-map-keys: [type] to status.conditions "+
			"(+listType=map and +listMapKey=type in Go)", s.name(), name, how))
	}
	if i := slices.IndexFunc(others, func(name string) bool { return count[name] == 0 }); i >= 0 && oneField(stored) {
		return wrong(others[i], "of another field manager is lost")
	}
	for _, c := range s.all {
		if s.decided[c.Type] != "" && count[c.Type] > 1 {
			return wrong(c.Type, "exists twice")
		}
	}
	return nil
}

// others returns the types that an apply of s does not name.
func (s *Set) others(all []metav1.Condition) (types []string) {
	for _, c := range all {
		if s.decided[c.Type] == "" {
			types = append(types, c.Type)
		}
	}
	return types
}

// oneField reports whether a field manager owns status.conditions as one field, not the elements.
func oneField(obj client.Object) bool {
	return slices.ContainsFunc(obj.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		var owned struct {
			Status struct {
				Conditions map[string]any `json:"f:conditions"`
			} `json:"f:status"`
		}
		return e.FieldsV1 != nil && json.NewDecoder(e.FieldsV1.GetRawReader()).Decode(&owned) == nil &&
			owned.Status.Conditions != nil && len(owned.Status.Conditions) == 0
	})
}
