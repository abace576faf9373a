// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const (
	kinds      = 1000 // that may be written
	idleWrites = 10   // of one name without an effect, in the tail, beside one a second
	hot        = 1000 // writes; from then on each takes a second, so time passes in a hot loop
)

// run is one performance of a scenario.
type run struct {
	scenario *Scenario
	plan     Plan
	plane    plane
	// plainLists means that the API server cannot stream lists.
	plainLists bool
	pace       pace
	history    *history

	mu         sync.Mutex
	record     record
	counts     map[string]int
	newest     map[string]*author // by resource, namespace and name
	generated  map[string]string  // names, by resource, namespace and name
	versions   map[string]*author // by resource and version, of answers
	refusing   time.Time          // until then, Leases cannot be written
	old        string             // version of OldList
	oldKind    schema.GroupVersionResource
	userWrites int
	pending    int       // faults of time that still work
	settles    time.Time // converge waits for it
	alive      []*incarnation
	born       int           // processes
	changedOp  chan struct{} // closed with the next process
	down       chan struct{} // closed by the crash of CrashThenStep
	resume     chan struct{} // closed after the next step
	upOnce     sync.Once     // closes it
	hasty      chan struct{} // closed by the write of LateThenStep: do the next step
	stopped    chan struct{} // closed when the programs are
	joined     sync.WaitGroup
}

// perform performs the scenario.
func perform(ctx context.Context, p plane, s *Scenario, plan Plan, k known) *record {
	r := &run{
		scenario: s, plan: plan, plane: p, plainLists: k.again, pace: p.pace(), record: newRecord(),
		counts: map[string]int{}, newest: map[string]*author{}, generated: map[string]string{}, versions: map[string]*author{},
		changedOp: make(chan struct{}), down: make(chan struct{}), resume: make(chan struct{}), hasty: make(chan struct{}), stopped: make(chan struct{}),
	}
	from, err := p.version(ctx)
	if err == nil {
		var api dynamic.Interface
		if api, err = newDynamic(p.config()); err == nil {
			r.history = newHistory(api, from)
			if plan.Fault == Restore { // a restored server has no list of the begin
				for _, of := range k.kinds {
					r.history.follow(of)
				}
			}
		}
	}
	if err != nil {
		r.fail("the control plane cannot be read: %v", err)
		return &r.record
	}
	r.logf("%s", plan)
	ctx, stop := context.WithCancel(ctx)
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	var recording sync.WaitGroup
	recording.Go(func() { r.history.run(watching) })
	r.runAll(ctx)
	p.settle()
	r.record.changes = r.history.all()
	close(r.stopped)
	stop()
	r.end()
	unwatch()
	recording.Wait()
	for _, err := range r.history.errs {
		r.fail("%v", err)
	}
	r.record.before = r.history.before
	r.judge()
	return &r.record
}

// end waits for all programs.
func (r *run) end() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.joined.Wait()
	}()
	select {
	case <-done:
	case <-time.After(2 * ending):
		r.stuck("a program of Scenario.Beside")
	}
}

// soon lets converge wait for at least d.
func (r *run) soon(d time.Duration) {
	if closed(r.stopped) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := time.Now().Add(d); at.After(r.settles) {
		r.settles = at
	}
}

// pause waits, at most until the programs are stopped or a channel is closed.
func (r *run) pause(d time.Duration, or ...<-chan struct{}) {
	var early <-chan struct{}
	if len(or) > 0 {
		early = or[0]
	}
	select {
	case <-time.After(d):
	case <-r.stopped:
	case <-early:
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
