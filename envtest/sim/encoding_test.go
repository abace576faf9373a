// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

func TestEncodingsAreBounded(t *testing.T) {
	s := NewServer(ConfigMaps)
	s.Put(ConfigMaps, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "default", "name": "a"}}})
	for resource, table := range s.tables {
		for i := range 1000 {
			u := s.Object(Resource(table.Resource), "default", "a").DeepCopy()
			u.Object["data"] = map[string]any{"n": strconv.Itoa(i)}
			s.Put(Resource(table.Resource), u)
			for j := range table.events {
				if j >= len(table.events)-sharedEvents {
					if _, err := table.encode(table.events[j].after, wire.Form{}, true); err != nil {
						t.Fatal(resource, err)
					}
				}
			}
		}
		if n := len(table.encodings); n > sharedEvents+len(table.objects) {
			t.Errorf("%d encodings", n)
		}
	}
}
