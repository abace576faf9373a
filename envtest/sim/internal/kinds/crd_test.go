// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestV1_EachFieldOfACRDNeedsAType: like the real server, the sim refuses a schema without types.
// It reports equal schemas once. In examples/website, TestYourCluster compares both servers.
func TestV1_EachFieldOfACRDNeedsAType(t *testing.T) {
	good := map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object"}}}
	bad := map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{}}}
	const want = "properties[spec].type: Required value: must not be empty for specified object fields"
	for name, c := range map[string]struct {
		Schemas []map[string]any
		want    string
	}{
		"good":      {[]map[string]any{good, good}, ""},
		"same":      {[]map[string]any{bad, bad}, "spec.validation.openAPIV3Schema." + want},
		"different": {[]map[string]any{good, bad}, "spec.versions[1].schema.openAPIV3Schema." + want},
	} {
		d := &CRD{}
		d.Metadata.Name = "lamps.example.com"
		d.Spec.Group, d.Spec.Scope = "example.com", "Namespaced"
		d.Spec.Names = crdNames{Plural: "lamps", Singular: "lamp", Kind: "Lamp", ListKind: "LampList"}
		for i, schema := range c.Schemas {
			v := CRDVersion{Name: []string{"v1", "v2"}[i], Served: true, Storage: i == 0}
			v.Schema.OpenAPIV3Schema = schema
			d.Spec.Versions = append(d.Spec.Versions, v)
		}
		got := ""
		if err := d.check().ToAggregate(); err != nil {
			got = err.Error()
		}
		testkit.Equal(t, got, c.want, name)
	}
}
