// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package conformance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// BenchmarkCycle measures create-get-update-delete cycles of a ConfigMap on both servers, which
// take turns of one or 20 cycles. It prints the times that a client waits, and their ratio.
//
// After its last answer, the real server goes on working: it writes to the disk, fills watch caches
// and collects garbage. If the sim's turn begins at once, it competes with that work, and
// sim-us/cycle contains it. sim-cpu-us/cycle does not: it is the processor time of this process
// during the sim's turns. With a pause, both servers begin their turns on a quiet machine.
//
// A turn of one cycle begins with cold processor caches, so its processor time is higher, too.
// Turns of 20 with a pause show what a test pays.
func BenchmarkCycle(b *testing.B) {
	host, client := plain.start(b)
	real := &side{host: host, client: client, real: true}
	sim, err := newSim()
	testkit.NoError(b, err)
	var both []*contestant
	for _, one := range []*side{real, sim} {
		one.prepare("cycle")
		testkit.NoError(b, testkit.Err(one.do(b.Context(), parseStep(`POST namespaces {"metadata":{"name":"{ns}"}}`))))
		both = append(both, newContestant(one))
	}
	for _, pause := range []time.Duration{0, 50 * time.Millisecond} {
		for _, block := range []int{1, 20} {
			b.Run(fmt.Sprintf("cycles=%d/pause=%s", block, pause), func(b *testing.B) { alternate(b, both[0], both[1], block, pause) })
		}
	}
}

// contestant is a server with the requests of a cycle, and what they cost.
type contestant struct {
	client          *http.Client
	calls           []call
	time, processor time.Duration
}

// call is a request without placeholders, so that a turn does not measure the suite.
type call struct{ method, url, body string }

func newContestant(s *side) *contestant {
	c := &contestant{client: s.client}
	for _, one := range parseScripts(`== cycle
POST configmaps {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}
GET configmaps/a
PUT configmaps/a {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"w"}}
DELETE configmaps/a
`)[0].steps {
		c.calls = append(c.calls, call{one.method, s.host + s.path(one.target), one.body})
	}
	return c
}

// alternate measures turns of each server.
func alternate(b *testing.B, real, sim *contestant, block int, pause time.Duration) {
	b.Helper()
	for _, one := range []*contestant{real, sim} {
		one.time, one.processor = 0, 0
	}
	for b.Loop() {
		for _, one := range []*contestant{real, sim} {
			quiet(b.Context(), pause)
			begin, used := time.Now(), processor(b)
			for range block {
				one.cycle(b)
			}
			one.time += time.Since(begin)
			one.processor += processor(b) - used
		}
	}
	cycles := float64(b.N * block)
	b.ReportMetric(real.time.Seconds()*1e6/cycles, "real-us/cycle")
	b.ReportMetric(sim.time.Seconds()*1e6/cycles, "sim-us/cycle")
	b.ReportMetric(sim.processor.Seconds()*1e6/cycles, "sim-cpu-us/cycle")
	b.ReportMetric(float64(real.time)/float64(sim.time), "times-faster")
	b.ReportMetric(0, "ns/op") // it would contain the pauses
}

// quiet returns after a pause.
func quiet(ctx context.Context, pause time.Duration) {
	end, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	<-end.Done()
}

// cycle sends the requests and reads their responses.
func (c *contestant) cycle(b *testing.B) {
	b.Helper()
	for _, one := range c.calls {
		testkit.NoError(b, c.send(b.Context(), one))
	}
}

func (c *contestant) send(ctx context.Context, one call) error {
	r, err := http.NewRequestWithContext(ctx, one.method, one.url, strings.NewReader(one.body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", userAgent)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", one.method, one.url, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// processor returns the processor time of this process.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	testkit.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
