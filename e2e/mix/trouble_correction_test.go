// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// correction is a person who writes a bad value, so that the Reconcile fails and backs off, and
// corrects it later. The correction must not wait for the backoff.
type correction struct{}

func (correction) name() string { return "correction" }

// The other troubles may keep the bad value from being reconciled.
func (correction) line() string { return "" }

func (correction) strike(w *world, r *rand.Rand) int {
	name := fmt.Sprintf("person-%d", r.IntN(2))
	if !w.set(name, fmt.Sprintf("%s-%d", bad, r.IntN(1<<20))) {
		return 0
	}
	w.plane.pause(between(r, time.Minute, 8*time.Minute))
	good := fmt.Sprintf("good-%d", r.IntN(1<<20))
	hits := 0
	if r.IntN(4) == 0 {
		if w.set(name, good) {
			hits = 1
		}
	} else {
		hits = w.setBeforeReport(name, good)
	}
	if w.plane.pause(5 * time.Second); w.alone && w.observes(name) != good {
		w.births.note("the correction of %s waits", name)
	}
	return hits
}

// setBeforeReport writes a value just before the operator reports its failure, which is a no-op. It
// returns the number of such reports.
func (w *world) setBeforeReport(name, good string) (hits int) {
	f := w.plane.add(fault.Rule{
		Match: fault.Match{Verbs: []string{"patch"}, Resources: []string{"boards"}, Func: func(h *fault.Request) bool { return h.Name == name && w.ofReplica(h) }},
		Times: 1, Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
			w.set(name, good)
			return next.RoundTrip(h)
		}})
	defer f.Remove()
	for range 20 {
		if w.plane.pause(time.Minute); f.Hits() > 0 {
			break
		}
	}
	if f.Hits() == 0 {
		w.set(name, good)
	}
	return f.Hits()
}
