// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkCycle measures create-get-update-delete cycles of a ConfigMap on both servers, and
// prints the ratio.
func BenchmarkCycle(b *testing.B) {
	host, client := plain.start(b)
	real := &side{host: host, client: client, real: true}
	sim, err := newSim()
	if err != nil {
		b.Fatal(err)
	}
	for _, one := range []*side{real, sim} {
		one.prepare("cycle")
		if _, err := one.do(b.Context(), parseStep(`POST namespaces {"metadata":{"name":"{ns}"}}`)); err != nil {
			b.Fatal(err)
		}
	}
	steps := parseScripts(`== cycle
POST configmaps {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}
GET configmaps/a
PUT configmaps/a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"w"}}
DELETE configmaps/a
`)[0].steps
	for _, block := range []int{1, 20} {
		b.Run(fmt.Sprintf("alternating-every-%d", block), func(b *testing.B) { alternate(b, real, sim, steps, block) })
	}
}

// alternate measures blocks of cycles on each server. In blocks of one cycle, the sim begins with
// cold caches, and next to the work that the real server does after its answers.
func alternate(b *testing.B, real, sim *side, steps []step, block int) {
	b.Helper()
	times := map[*side]time.Duration{}
	for b.Loop() {
		for _, one := range []*side{real, sim} {
			begin := time.Now()
			for _, step := range slices.Repeat(steps, block) {
				if err := one.discard(b.Context(), step); err != nil {
					b.Fatal(err)
				}
			}
			times[one] += time.Since(begin)
		}
	}
	cycles := float64(b.N * block)
	b.ReportMetric(times[real].Seconds()*1e6/cycles, "real-µs/cycle")
	b.ReportMetric(times[sim].Seconds()*1e6/cycles, "sim-µs/cycle")
	b.ReportMetric(float64(times[real])/float64(times[sim]), "times-faster")
}

// discard does a step and reads its response, without a comparison.
func (s *side) discard(ctx context.Context, one step) error {
	resp, err := s.request(ctx, one)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", one, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
