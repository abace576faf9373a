// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"testing"
	"time"
)

// BenchmarkCycle measures a create-get-update-delete cycle of a ConfigMap on both servers, and
// prints the ratio.
func BenchmarkCycle(b *testing.B) {
	host, client := plain.start(b)
	real := &side{host: host, client: client, real: true}
	sim := newSim()
	times := map[*side]time.Duration{}
	for _, one := range []*side{real, sim} {
		one.prepare("cycle")
		if _, err := one.do(b.Context(), parseStep(`POST namespaces {"metadata":{"name":"{ns}"}}`)); err != nil {
			b.Fatal(err)
		}
	}
	steps := parseScripts(`== cycle
POST configmaps {"metadata":{"name":"a"},"data":{"k":"v"}}
GET configmaps/a
PUT configmaps/a {"metadata":{"name":"a","resourceVersion":"{rv configmaps/a}"},"data":{"k":"w"}}
DELETE configmaps/a
`)[0].steps
	for b.Loop() {
		for _, one := range []*side{real, sim} {
			begin := time.Now()
			for _, step := range steps {
				r, err := one.do(b.Context(), step)
				if err != nil || r.Status >= http.StatusBadRequest {
					b.Fatal(step, r, err)
				}
			}
			times[one] += time.Since(begin)
		}
	}
	b.ReportMetric(times[real].Seconds()*1e6/float64(b.N), "real-µs/op")
	b.ReportMetric(times[sim].Seconds()*1e6/float64(b.N), "sim-µs/op")
	b.ReportMetric(float64(times[real])/float64(times[sim]), "times-faster")
}
