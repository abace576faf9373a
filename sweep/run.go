// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/apipath"
)

const (
	quiet    = 10 * time.Second // without a change, an idle operator has converged
	still    = 10 * time.Minute // without a change, a failing operator has converged
	patience = 20 * time.Minute // for one step
	tail     = time.Minute      // after the last step
	restart  = 5 * time.Second  // after a crash, until the next process
	ending   = time.Minute      // for Run, after the end of its context

	kinds      = 1000 // that may be written
	idleWrites = 10   // of the operator without an effect, in the tail
)

// record is what happened in a run.
type record struct {
	writes   []*write // of the operator
	watched  map[schema.GroupVersionResource]bool
	outdated map[schema.GroupVersionResource]bool // lists of any version
	leases   bool
	fired    bool

	changes  []change
	after    []int              // by step: the number of changes when it had converged
	states   []map[string][]any // by step: the normalised objects, by key
	created  map[string]int
	deleted  map[string]int
	late     string   // writes after the end
	failures []string // what no run may do
	log      strings.Builder
}

// run is one performance of a scenario.
type run struct {
	scenario *Scenario
	plan     Plan
	server   *sim.Server
	history  *history

	mu        sync.Mutex
	record    record
	counts    map[string]int
	versions  map[string]bool // of answers
	refusing  time.Time       // until then, Leases cannot be written
	old       string          // version of OldList
	oldKind   schema.GroupVersionResource
	pending   int       // faults of time that still work
	settles   time.Time // converge waits for it
	operator  *incarnation
	changedOp chan struct{}
	down      chan struct{} // closed by the crash of CrashThenStep
	resume    chan struct{} // closed after the next step
	stopped   chan struct{} // closed when the programs are
	joined    sync.WaitGroup
}

// incarnation is one process of the operator.
type incarnation struct {
	connection *connection
	op         Operator
}

// perform performs the scenario on a new sim, in a bubble.
func perform(t *testing.T, s *Scenario, plan Plan, shift time.Duration) *record {
	<-time.After(shift)
	server := sim.New(t, s.Scheme, s.Objects...)
	cfg := server.Config()
	r := &run{
		scenario: s, plan: plan, server: server, counts: map[string]int{}, versions: map[string]bool{}, changedOp: make(chan struct{}), down: make(chan struct{}), resume: make(chan struct{}), stopped: make(chan struct{}),
		record: record{watched: map[schema.GroupVersionResource]bool{}, outdated: map[schema.GroupVersionResource]bool{}},
	}
	api, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	r.history = &history{api: api, from: r.server.Version(), wanted: make(chan schema.GroupVersionResource, kinds), followed: map[schema.GroupResource]bool{}}
	var recording sync.WaitGroup
	recording.Go(func() { r.history.run(watching) })
	r.runAll(ctx, cfg)
	synctest.Wait()
	r.record.changes = r.history.all()
	close(r.stopped)
	stop()
	r.end()
	unwatch()
	recording.Wait()
	for _, err := range r.history.errs {
		r.fail("%v", err)
	}
	r.record.judge(s)
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

// stuck prints what goes wrong before the bubble can deadlock.
func (r *run) stuck(who string) {
	text := fmt.Sprintf("%s has not returned from Run %s after the end of its context; let Run end with its context, and join what it starts", who, ending)
	fmt.Fprintf(os.Stderr, "sweep: %s: %s\n", r.plan, text)
	r.fail("%s", text)
}

// process makes the configuration of a program.
func (r *run) process(ctx context.Context, cfg *rest.Config, who string) (Process, *connection, context.Context) {
	ctx, crash := context.WithCancel(ctx)
	l := &connection{run: r, who: who, rules: fault.NewRules(), crash: crash}
	own := rest.CopyConfig(cfg)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.next = l.rules.Transport(next)
		return l
	})
	log := slog.New(slog.NewTextHandler(logWriter{r, who}, nil))
	return Process{own, log}, l, ctx
}

// operate runs one incarnation of the operator after another.
func (r *run) operate(ctx context.Context, cfg *rest.Config) {
	for n := 1; ctx.Err() == nil; n++ {
		p, l, alive := r.process(ctx, cfg, fmt.Sprintf("operator %d", n))
		l.under = true
		r.always(l)
		op, err := r.scenario.Operator(p)
		if err != nil {
			r.fail("Scenario.Operator: %v", err)
			l.kill()
			return
		}
		r.begins(&incarnation{l, op})
		returned := make(chan error, 1)
		go func() { returned <- op.Run(alive) }()
		select {
		case err = <-returned:
		case <-alive.Done():
			select {
			case err = <-returned:
			case <-time.After(ending):
				r.stuck(fmt.Sprintf("operator %d", n))
				return
			}
		}
		if !l.crashed() && ctx.Err() == nil {
			r.logf("operator %d returned: %v", n, err)
			r.mu.Lock()
			if r.plan.Fault == None {
				r.record.failures = append(r.record.failures, fmt.Sprintf("the operator's Run returned by itself: %v", err))
			}
			r.mu.Unlock()
		}
		l.kill()
		if closed(r.down) {
			<-r.resume
		}
		r.soon(faultLasts) // a new member of a shard group waits for the Lease of the former one
		select {
		case <-ctx.Done():
		case <-time.After(restart):
		}
	}
}

func (r *run) begins(i *incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operator = i
	close(r.changedOp)
	r.changedOp = make(chan struct{})
}

// current waits for the first process.
func (r *run) current() *incarnation {
	for {
		r.mu.Lock()
		i, changed := r.operator, r.changedOp
		r.mu.Unlock()
		if i != nil {
			return i
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			return nil
		}
	}
}

// begin names a write.
func (r *run) begin(l *connection, t apipath.Target, of schema.GroupVersionResource) *write {
	name := t.Verb + " " + of.Resource
	if t.Subresource != "" {
		name += "/" + t.Subresource
	}
	if t.Name != "" {
		name += " " + t.Namespace + "/" + t.Name
	} else if t.Namespace != "" {
		name += " in " + t.Namespace
	}
	w := &write{name: name, verb: t.Verb, resource: of}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.under {
		r.counts[name]++
		w.nth = r.counts[name]
		r.record.writes = append(r.record.writes, w)
	}
	return w
}

func (r *run) answered(w *write, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := w.resource.Resource + " " + version
	w.effective = version == "" || !r.versions[key] || w.verb == "delete"
	r.versions[key] = true
}

// lists records a list that may be old.
func (r *run) lists(of schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.outdated[of] = true
}

func (r *run) watches(of schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.watched[of] = true
}

func (r *run) usesLeases() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.leases = true
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

// pause waits, at most until the programs are stopped.
func (r *run) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.stopped:
	}
}

func (r *run) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.failures = append(r.record.failures, fmt.Sprintf(format, args...))
}

func (r *run) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.record.log, "%s %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// logWriter writes the log of a program.
type logWriter struct {
	r   *run
	who string
}

func (w logWriter) Write(p []byte) (int, error) {
	w.r.logf("%s: %s", w.who, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
