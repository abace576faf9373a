// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// fleet is a group of replicas in one bubble, with a judge.
type fleet struct {
	t   *testing.T
	api *sim.Server
	all []*replica
}

// replica is a process with a group. Its connection can be cut.
type replica struct {
	*shard.Group

	t    *testing.T
	name string
	cut  atomic.Bool
	stop context.CancelFunc
	done chan error
	over atomic.Bool
	work sync.WaitGroup // lead returns after it

	mu    sync.Mutex // guards known
	known map[*owned.Slot]bool
}

type network struct {
	http.RoundTripper
	of *replica
}

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.of.cut.Load() {
		return nil, errors.New("the network is cut")
	}
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		n.of.judge(body)
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return n.RoundTripper.RoundTrip(r)
}

// judge checks P5: when the replica stores an assignment, its fence is closed for all slots that
// it has not in there.
func (r *replica) judge(body []byte) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	l, ok := o.(*coordinationv1.Lease)
	if err != nil || !ok || l.Annotations[shard.SlotsAnnotation] == "" {
		return
	}
	a, err := slots.Decode(shard.ByKey().String(), slots.Record{Version: 1 << 60, Manager: slots.Manager, Text: l.Annotations[shard.SlotsAnnotation]})
	if err != nil {
		return // with other settings
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for known := range r.known {
		of := a.Slot(known.Number)
		if known.Term.Trusted() == nil && (of.Owner.String() != r.Status().Member || of.Epoch != known.Epoch) {
			r.t.Errorf("P5: %s stores that slot %d belongs to %q, and its own fence is open", r.name, known.Number, of.Owner)
		}
	}
}

func newFleet(t *testing.T) *fleet {
	api := sim.NewServer(sim.Leases, sim.ConfigMaps)
	t.Cleanup(api.Close)
	return &fleet{t: t, api: api}
}

func election() leaderelection.Options {
	return leaderelection.Options{Lease: "web", Namespace: "default"}
}

func (f *fleet) client() kubernetes.Interface { return kubernetes.NewForConfigOrDie(f.api.Config()) }

func (f *fleet) start(name string, o shard.Options) *replica {
	f.t.Helper()
	r := f.make(name, o)
	f.run(r)
	return r
}

func (f *fleet) make(name string, o shard.Options) *replica {
	f.t.Helper()
	r := &replica{t: f.t, name: name, done: make(chan error, 1)}
	cfg := f.api.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return network{rt, r} })
	o.Election = election()
	o.Election.Identity = name
	var err error
	r.Group, err = shard.New(cfg, o)
	testkit.NoError(f.t, err)
	return r
}

func (f *fleet) run(r *replica) { f.runIn(f.t.Context(), r) }

func (f *fleet) runIn(ctx context.Context, r *replica) {
	ctx, stop := context.WithCancel(ctx)
	r.stop = stop
	go func() {
		err := r.Run(ctx, func(take, _ context.Context) error {
			<-take.Done()
			r.work.Wait()
			return nil
		})
		r.over.Store(true)
		r.done <- err
	}()
	f.all = append(f.all, r)
}

// owns returns the slots that may be worked on now.
func (r *replica) owns() (all []*owned.Slot) {
	current, _ := r.Owned()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[*owned.Slot]bool{}
	}
	for _, of := range current {
		a := of.(*owned.Slot) //nolint:forcetypeassert // the only type
		r.known[a] = true
		if a.Term.Trusted() == nil {
			all = append(all, a)
		}
	}
	return all
}

// judge checks P1, and returns how many slots each replica owns.
func (f *fleet) judge() map[string]int {
	f.t.Helper()
	var owner [term.Slots]string
	counts := map[string]int{}
	for _, r := range f.all {
		mine := r.owns()
		for _, a := range mine {
			if other := owner[a.Number]; other != "" {
				f.t.Fatalf("P1: %s and %s own slot %d", other, r.name, a.Number)
			}
			owner[a.Number] = r.name
		}
		if len(mine) > 0 {
			counts[r.name] = len(mine)
		}
	}
	return counts
}

// pass lets time pass in small steps, and judges after each.
func (f *fleet) pass(d time.Duration) map[string]int {
	f.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		f.judge()
	}
	return f.judge()
}

// passUntil lets time pass until the counts are right, and returns how long this took.
func (f *fleet) passUntil(what string, limit time.Duration, right func(map[string]int) bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for time.Since(began) < limit {
		synctest.Wait() // while it runs, the judge would see replicas at different moments
		if right(f.judge()) {
			return time.Since(began)
		}
		time.Sleep(20 * time.Millisecond)
	}
	synctest.Wait()
	f.t.Fatalf("%s: not after %s: %v; %s", what, limit, f.judge(), f.describe())
	return 0
}

func (f *fleet) describe() string {
	var all []string
	for _, r := range f.all {
		all = append(all, fmt.Sprintf("%s: %+v", r.name, *r.Status()))
	}
	return strings.Join(all, "\n")
}

func (f *fleet) end() {
	for _, r := range f.all {
		r.cut.Store(false)
		r.stop()
	}
	for _, r := range f.all {
		if !r.over.Load() {
			<-r.done
		}
	}
	synctest.Wait()
}

func even(members, total int) func(map[string]int) bool {
	return func(counts map[string]int) bool {
		sum := 0
		for _, n := range counts {
			if n < total/members || n > (total+members-1)/members {
				return false
			}
			sum += n
		}
		return len(counts) == members && sum == total
	}
}

func TestGroup_MembersShareAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		f.start("a", shard.Options{})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		for i, name := range []string{"b", "c", "d", "e"} {
			f.start(name, shard.Options{})
			took := f.passUntil(name, 30*time.Second, even(i+2, 256))
			t.Logf("%d members after %s", i+2, took)
		}
	})
}

func lease(t *testing.T, f *fleet, name string) *coordinationv1.Lease {
	t.Helper()
	l, err := f.client().CoordinationV1().Leases("default").Get(t.Context(), name, metav1.GetOptions{})
	testkit.NoError(t, err)
	return l
}

// TestP3_AGracefulMoveTakesOneWriteAndOneEvent: a member that leaves gives its slots to the others
// at once, and nothing of it stays.
func TestP3_AGracefulMoveTakesOneWriteAndOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.start("b", shard.Options{})
		f.start("c", shard.Options{})
		f.passUntil("three members", time.Minute, even(3, 256))
		a.stop()
		took := f.passUntil("two members", time.Second, even(2, 256))
		testkit.Equal(t, <-a.done, nil)
		t.Logf("%s", took)
		f.pass(time.Minute)
		all, err := f.client().CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{})
		testkit.NoError(t, err)
		testkit.Len(t, all.Items, 3)
	})
}

// TestP3_ACrashTakesTheLease: the others own the slots of a silent member when its Lease has
// expired, not before.
func TestP3_ACrashTakesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.start("b", shard.Options{})
		f.start("c", shard.Options{})
		f.passUntil("three members", time.Minute, even(3, 256))
		a.cut.Store(true)
		took := f.passUntil("two members", time.Minute, func(counts map[string]int) bool { return counts["b"]+counts["c"] == 256 })
		testkit.AtLeast(t, took, 12*time.Second)
		testkit.AtMost(t, took, 15500*time.Millisecond)
		a.cut.Store(false)
		f.passUntil("three members again", 2*time.Minute, even(3, 256))
		f.pass(3 * time.Minute)
		if all, err := f.client().CoordinationV1().Leases("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 4 {
			t.Errorf("%d Leases, want 4 (%v)", len(all.Items), err)
		}
	})
}

// TestGroup_TheLastMemberFreesTheLease, for an elector of one leader.
func TestGroup_TheLastMemberFreesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a := f.start("a", shard.Options{})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		testkit.Equal(t, *lease(t, f, "web").Spec.HolderIdentity, shard.Holder)
		a.stop()
		testkit.Equal(t, <-a.done, nil)
		if l := lease(t, f, "web"); *l.Spec.HolderIdentity != "" || *l.Spec.LeaseDurationSeconds != 1 {
			t.Errorf("the Lease is not free: %+v", l.Spec)
		}
	})
}
