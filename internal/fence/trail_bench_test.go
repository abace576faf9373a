// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/ledger"
)

// BenchmarkTrail measures what recording a write costs a term: of one object repeatedly, and of
// more objects than it keeps.
func BenchmarkTrail(b *testing.B) {
	for name, n := range map[string]int{"one object": 1, "100 objects": 100, "10000 objects": 10_000} {
		b.Run(name, func(b *testing.B) {
			writes := make([]ledger.Write, n)
			for i := range writes {
				w := &writes[i]
				w.Verb, w.Group, w.Resource, w.Namespace, w.Name = "update", "apps", "deployments", "default", "deployment-"+strconv.Itoa(i)
				w.UID, w.ResourceVersion, w.Effect = types.UID("3c2f1a50-9d0e-4c7c-8f43-00000000"+strconv.Itoa(1000+i)), strconv.Itoa(1_000_000+i), ledger.Stored
			}
			t := trail{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				t.note(&writes[i%n])
			}
		})
	}
}
