// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// These environment variables configure the harness. See setting for the defaults.
const (
	outageRuns = "SETPOINT_OUTAGE_RUNS" // runs of each variant
	// Runs of each variant at once: they have the API server, and its ends, in common.
	outageLanes = "SETPOINT_OUTAGE_LANES"
	outageLamps = "SETPOINT_OUTAGE_LAMPS" // lamps of each client
	outageKills = "SETPOINT_OUTAGE_KILLS" // kills of the API server in a run
	outageSeed  = "SETPOINT_OUTAGE_SEED"  // of the first batch; each batch has the next one
)

// setting returns a number from the environment, else short, or full with SETPOINT_FULL=1.
func setting(variable string, short, full int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	if os.Getenv("SETPOINT_FULL") != "" {
		return full
	}
	return short
}

// C6
var _ = It("An operator leaves no object too many, wrong or missing when the API server is killed again and again", Serial, func(ctx SpecContext) {
	runs, at := setting(outageRuns, 1, 200), setting(outageLanes, 1, 4)
	seed := uint64(setting(outageSeed, int(GinkgoRandomSeed()), int(GinkgoRandomSeed()))) //nolint:gosec // any will do
	installLamps(ctx)
	var all outageReport
	for done := 0; done < runs; done += at {
		b := newBatch(ctx, seed, min(at, runs-done))
		b.run(ctx, setting(outageKills, 2, 3))
		all.add(b)
		seed++
		GinkgoWriter.Println(all.String())
		if os.Getenv("SETPOINT_FULL") != "" {
			fmt.Fprintln(os.Stderr, all.String()) // a loop of an hour is watched
		}
	}
	Expect(all.violations).To(BeEmpty())
}, NodeTimeout(4*time.Hour))

// batch is a set of runs that share the API server.
type batch struct {
	seed    uint64
	random  *rand.Rand
	lanes   []*lane
	back    time.Time     // when the API server has come back for the last time
	longest time.Duration // outage
	over    chan struct{}
	clients sync.WaitGroup
}

// lane is one run: an operator and its clients, in two namespaces of its own.
type lane struct {
	name     string
	history  *history
	dynamic  dynamic.Interface
	operator *outageOperator
	manager  *manager.Manager
	clients  []*outageClient
	log      *logCounts
	stop     context.CancelFunc
	stopped  chan error

	idle, converged time.Duration // after the API server's return
	late            bool          // it was idle before all was right
	violations      []string
}

func newBatch(ctx context.Context, seed uint64, each int) *batch {
	GinkgoHelper()
	b := &batch{seed: seed, random: rand.New(rand.NewPCG(seed, 0)), over: make(chan struct{})} //nolint:gosec // no secrets
	for n := range each {
		b.lanes = append(b.lanes, b.newLane(ctx, fmt.Sprintf("ignoring Stale, seed %d, lane %d", seed, n), false))
		b.lanes = append(b.lanes, b.newLane(ctx, fmt.Sprintf("returning Stale, seed %d, lane %d", seed, n), true))
	}
	return b
}

func (b *batch) newLane(ctx context.Context, name string, heeds bool) *lane {
	GinkgoHelper()
	l := &lane{name: name, history: newHistory(), log: &logCounts{}, stopped: make(chan error, 1)}
	namespace, err := cluster.Namespace(ctx, "outage-")
	Expect(err).NotTo(HaveOccurred())
	outside, err := cluster.Namespace(ctx, "outside-")
	Expect(err).NotTo(HaveOccurred())
	cfg := cluster.Config()
	h, err := rest.HTTPClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	l.dynamic, err = dynamic.NewForConfigAndClient(cfg, h)
	Expect(err).NotTo(HaveOccurred())
	l.manager = manager.New(cluster.Config(), manager.Options{
		Name: "outage", Scheme: newScheme(), Logger: slog.New(logCounter{logCounts: l.log}),
		Hook: hook.On(func(s *hook.InformerState) {
			l.history.note(everybody, "INFORMER %s %s: %v", s.Kind, s.Phase, s.Err)
		}),
	})
	l.operator = newOutageOperator(l.manager, l.history, namespace, outside, heeds)
	for n := range 4 {
		c := &outageClient{
			dynamic: l.dynamic, namespace: namespace, history: l.history, wanted: map[string]int{},
			random: rand.New(rand.NewPCG(b.seed, b.random.Uint64())), //nolint:gosec // no secrets
		}
		for i := range setting(outageLamps, 8, 8) {
			c.wanted[fmt.Sprintf("lamp-%d-%d", n, i)] = 0
		}
		l.clients = append(l.clients, c)
	}
	return l
}

// run lets clients work while the API server is killed and restarted, and compares the objects
// afterwards.
func (b *batch) run(ctx context.Context, kills int) {
	GinkgoHelper()
	for _, l := range b.lanes {
		running, stop := context.WithCancel(ctx)
		l.stop = stop
		go func() { l.stopped <- l.manager.Run(running) }()
	}
	DeferCleanup(func() {
		for _, l := range b.lanes {
			l.stop()
		}
		Expect(cluster.StartAPIServer(context.Background())).To(Succeed())
	})
	for _, l := range b.lanes {
		for _, c := range l.clients {
			b.clients.Go(func() { c.churn(ctx, b.over) })
		}
	}
	for range kills {
		lapse(ctx, time.Duration(300+b.random.IntN(1500))*time.Millisecond)
		for _, l := range b.lanes {
			l.log.begins()
			l.history.note(everybody, "KILL")
		}
		down := time.Now()
		Expect(cluster.KillAPIServer()).To(Succeed())
		for tries := 1; ; tries++ { // a start has a time limit
			err := cluster.StartAPIServer(ctx)
			if err == nil {
				break
			}
			Expect(tries).To(BeNumerically("<", 5), "%v", err)
		}
		b.back = time.Now()
		b.longest = max(b.longest, b.back.Sub(down))
		for _, l := range b.lanes {
			l.history.note(everybody, "READY")
		}
	}
	if b.random.IntN(2) == 0 { // else the churn ends with the last outage
		lapse(ctx, time.Second)
	}
	for _, l := range b.lanes {
		l.history.note(everybody, "CHURN OVER")
	}
	close(b.over)
	b.clients.Wait()
	var all sync.WaitGroup
	for _, l := range b.lanes {
		all.Go(func() { l.finish(ctx, b.back) })
	}
	all.Wait()
}

// finish waits until the operator is idle, compares, stops it and removes all objects.
func (l *lane) finish(ctx context.Context, back time.Time) {
	over := time.Now()
	patient, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := l.manager.Idle(patient); err != nil {
		l.violations = append(l.violations, fmt.Sprintf("%s: Idle: %v", l.name, err))
	}
	l.idle = time.Since(over)
	l.history.note(everybody, "IDLE")
	first, err := l.judge(ctx)
	wrong, last, calm := slices.DeleteFunc(first, l.inBackoff), []difference(nil), 0
	for err == nil && calm < 20 { // until nothing more can be expected
		last, err = l.judge(ctx)
		passing := slices.DeleteFunc(slices.Clone(last), func(d difference) bool { return d.lasting })
		if len(passing) == 0 {
			break
		}
		l.late = true
		if calm++; slices.ContainsFunc(passing, l.inBackoff) {
			calm = 0
		}
		lapse(ctx, 100*time.Millisecond)
	}
	wrong = append(wrong, last...)
	l.converged = time.Since(back)
	if over.After(back) {
		l.converged = time.Since(over)
	}
	if err != nil {
		l.violations = append(l.violations, fmt.Sprintf("%s: %v", l.name, err))
	}
	l.tell(wrong)
	if l.converged > slow {
		l.history.note(everybody, "SLOW: %s, idle after %s, right after %s", l.name, l.idle, l.converged)
		fmt.Fprintln(os.Stderr, l.history.of(l.lastLamp()))
	}
	l.stop()
	if err := <-l.stopped; err != nil {
		l.violations = append(l.violations, fmt.Sprintf("%s: Run: %v", l.name, err))
	}
	l.clear(ctx)
}

// slow is the recovery time after which the harness reports the reason.
const slow = 5 * time.Second

// inBackoff accepts differences whose key waits in backoff, because Idle does not wait for it.
func (l *lane) inBackoff(d difference) bool {
	state, _ := l.look(d.lamp)
	return !d.lasting && state.State == workqueue.Waiting
}

func (l *lane) look(lamp string) (workqueue.KeyState[types.NamespacedName], bool) {
	return l.operator.control.Queue().Lookup(types.NamespacedName{Namespace: l.operator.namespace, Name: lamp})
}

// tell turns differences into violations, each once, with the history of the lamp.
func (l *lane) tell(wrong []difference) {
	lamps, told := map[string]bool{}, map[string]bool{}
	for _, d := range wrong {
		text := fmt.Sprintf("%s: %s", l.name, d.what)
		if told[text] {
			continue
		}
		told[text] = true
		if !lamps[d.lamp] {
			lamps[d.lamp] = true
			state, known := l.look(d.lamp)
			text += fmt.Sprintf("\nits key: %s %t\n%s", state.State, known, l.history.of(d.lamp))
		}
		l.violations = append(l.violations, text)
	}
}

// resources returns the operator's resources and their namespaces.
func (l *lane) resources() map[schema.GroupVersionResource]string {
	o := l.operator
	return map[schema.GroupVersionResource]string{
		lamps: o.namespace, configMaps: o.namespace, {Version: "v1", Resource: "secrets"}: o.namespace,
		{Version: "v1", Resource: "serviceaccounts"}: o.outside,
	}
}

// clear removes what the run has left, for the following runs.
func (l *lane) clear(ctx context.Context) {
	for name := range l.names() {
		_, _ = l.dynamic.Resource(lamps).Namespace(l.operator.namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	for r, namespace := range l.resources() {
		_ = l.dynamic.Resource(r).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
}

func (l *lane) names() map[string]int {
	all := map[string]int{}
	for _, c := range l.clients {
		for name, watts := range c.wanted {
			all[name] = watts
		}
	}
	return all
}

// judgeLamp compares a lamp with what its client wants, and with its objects.
func (l *lane) judgeLamp(name string, watts int, lamp *unstructured.Unstructured, maps []unstructured.Unstructured, had map[string]int) (all []difference) {
	wrong := func(format string, args ...any) {
		all = append(all, difference{name, name + ": " + fmt.Sprintf(format, args...), false})
	}
	if watts == 0 {
		if lamp != nil {
			wrong("it was deleted and is still there, with finalizers %v", lamp.GetFinalizers())
		}
		return all
	}
	if lamp == nil || lamp.GetDeletionTimestamp() != nil {
		wrong("it is missing, or being deleted")
		return all
	}
	want := strconv.Itoa(watts)
	if is := fmt.Sprint(lamp.Object["watts"]); is != want {
		wrong("HARNESS: watts are %s, not %s", is, want)
	}
	if is := lamp.GetAnnotations()[observed]; is != want || !slices.Contains(lamp.GetFinalizers(), switchOff) {
		wrong("observed is %q, not %q, finalizers %v", is, want, lamp.GetFinalizers())
	}
	for _, resource := range []string{"secrets", "serviceaccounts", "configmaps"} {
		switch n := had[resource+" "+name]; {
		case n == 0:
			wrong("no %s", resource)
		case n > 1:
			all = append(all, difference{name, fmt.Sprintf("%s: %d %s", name, n, resource), true})
		}
	}
	for i := range maps {
		if m := &maps[i]; m.GetName() == name {
			if is, _, _ := unstructured.NestedString(m.Object, "data", wattsOfMap); is != want {
				wrong("the ConfigMap has watts %q, not %q", is, want)
			}
		}
	}
	return all
}

// outageReport summarizes runs.
type outageReport struct {
	longest    time.Duration
	runs       map[bool]*outageSum
	violations []string
}

type outageSum struct {
	runs, bad, late                                       int
	reconciles, stale, unseen, uncertain, doubts, expired int64
	slowest, idle                                         time.Duration
	lines                                                 int
	of                                                    map[string]int
}

func (r *outageReport) add(b *batch) {
	if r.runs == nil {
		r.runs = map[bool]*outageSum{false: {}, true: {}}
	}
	r.longest = max(r.longest, b.longest)
	for _, l := range b.lanes {
		s, o := r.runs[l.operator.heeds], l.operator
		s.runs++
		if len(l.violations) > 0 {
			s.bad++
			r.violations = append(r.violations, l.violations...)
			if os.Getenv("SETPOINT_FULL") != "" {
				for _, v := range l.violations {
					fmt.Fprintln(os.Stderr, "VIOLATION", v)
				}
			}
		}
		if l.late {
			s.late++
		}
		s.reconciles += o.runs.Load()
		s.stale += o.stale.Load()
		s.unseen += o.unseen.Load()
		s.uncertain += o.uncertain.Load()
		s.doubts += o.doubts.Load()
		s.expired += o.expired.Load()
		s.slowest, s.idle = max(s.slowest, l.converged), max(s.idle, l.idle)
		if most, of := l.log.worst(); most > s.lines {
			s.lines, s.of = most, of
		}
	}
}

func (r *outageReport) String() string {
	text := fmt.Sprintf("%s: the longest outage took %s\n", time.Now().Format(time.TimeOnly), r.longest.Round(time.Millisecond))
	for _, heeds := range []bool{false, true} {
		s := r.runs[heeds]
		text += fmt.Sprintf("returns Stale: %t: %d runs, %d with differences, %d not right before a backoff ended; %d Reconciles, %d with Stale, %d began with own writes unseen, %d answers lost; "+
			"Awaited: %d with doubts, %d expired; converged at most %s after the API server's return, idle at most %s after the churn; at most %d log lines in an outage: %v\n",
			heeds, s.runs, s.bad, s.late, s.reconciles, s.stale, s.unseen, s.uncertain, s.doubts, s.expired, s.slowest.Round(time.Millisecond), s.idle.Round(time.Millisecond), s.lines, s.of)
	}
	return text
}
