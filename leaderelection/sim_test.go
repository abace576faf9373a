// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// theirs is an elector of client-go on the same Lease.
type theirs struct {
	*replica
	led atomic.Pointer[time.Time] // when it began to lead
}

func newTheirs(api *sim.Server) *theirs {
	return &theirs{replica: &replica{api: api}}
}

// run campaigns once, as identity, until ctx is done or the Lease is lost.
func (o *theirs) run(ctx context.Context, t *testing.T, identity string, release bool) {
	cfg := o.api.Config()
	cfg.Transport, cfg.Timeout = o.replica, 5*time.Second
	leases, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		t.Error(err)
		return
	}
	e, err := clientgo.NewLeaderElector(clientgo.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}, Client: leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: release,
		Callbacks: clientgo.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				now := time.Now()
				o.led.Store(&now)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Error(err)
		return
	}
	e.Run(logr.NewContext(ctx, logr.Discard()))
}

// start runs it until stop is called.
func (o *theirs) start(t *testing.T, identity string, release bool) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { o.run(ctx, t, identity, release) })
	return func() {
		cancel()
		running.Wait()
	}
}

// TestL7_ClientGoAndWeHandOverToEachOther: by release and by expiry, in both directions.
func TestL7_ClientGoAndWeHandOverToEachOther(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("theirs to ours, crash %t", crash), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newTheirs(api)
				stop := a.start(t, "a", true)
				testkit.Pass(seconds(1))
				b := newStandby(t, api, "b")
				testkit.Pass(seconds(60))
				if a.led.Load() == nil || !b.led.IsZero() {
					t.Fatal("not client-go leads")
				}
				from, late := lease(t, api).Spec.RenewTime.Add(seconds(15)), jitter
				if crash {
					a.cut()
				} else {
					stop()
					from, late = time.Now(), 0
				}
				testkit.Pass(seconds(30))
				b.leadsAfter(t, from, 0, late)
				stop()
			})
		})
		t.Run(fmt.Sprintf("ours to theirs, crash %t", crash), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				a := newStandby(t, api, "a")
				testkit.Pass(seconds(1))
				b := newTheirs(api)
				stop := b.start(t, "b", true)
				testkit.Pass(10 * time.Minute)
				if b.led.Load() != nil || a.led.IsZero() {
					t.Fatal("not we lead")
				}
				from, soonest, latest := lease(t, api).Spec.RenewTime.Time, seconds(15), seconds(15+2*4.4)
				if crash {
					a.cut()
				} else {
					a.stop()
					ok(t, a.result())
					from, soonest, latest = time.Now(), 0, seconds(4.4)
				}
				testkit.Pass(seconds(30))
				if led := b.led.Load(); led == nil || led.Sub(from) < soonest || led.Sub(from) > latest {
					t.Errorf("client-go leads since %v, want %s to %s after %s", led, soonest, latest, from)
				}
				stop()
				if crash {
					a.stop()
					ok(t, a.result())
				}
			})
		})
	}
}

const (
	ourNumber   = 3 // the last two under the same identity
	theirNumber = 2
)

// arena has our electors and client-go's on one Lease, and checks each write at the API server.
type arena struct {
	t   *testing.T
	api *sim.Server

	mu     sync.Mutex // guards the fields below, and orders the writes
	terms  [ourNumber]*term.Term
	since  time.Time // of the stored record
	writer *member

	members [ourNumber + theirNumber]*member
}

// member is one elector with its connection.
type member struct {
	*replica
	arena  *arena
	number int
	stop   func()

	before, after atomic.Int64 // the delay of a request, and of its answer
	lose          atomic.Bool  // the answers
}

func newArena(t *testing.T) *arena {
	a := &arena{t: t, api: sim.NewServer(sim.Leases)}
	for i := range a.members {
		m := &member{arena: a, number: i}
		if i < ourNumber {
			m.replica = newReplica(t, a.api, []string{"ours", "twin", "twin"}[i])
		} else {
			m.replica = &replica{api: a.api}
		}
		m.mend()
		a.members[i] = m
		m.toggle()
	}
	return a
}

// mend restores the connection.
func (m *member) mend() {
	m.before.Store(0)
	m.after.Store(0)
	m.lose.Store(false)
	through := m.through
	m.line.Store(&through)
}

// through sends a request over the connection.
func (m *member) through(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(m.before.Load())) // also after the sender gave up
	answer, err := m.arena.serve(m, req)
	time.Sleep(time.Duration(m.after.Load()))
	// A refused write at the same time would look like a twin's.
	if m.lose.Load() && err == nil && answer.StatusCode < 300 {
		answer.Body.Close()
		return nil, errors.New("connection reset")
	}
	return answer, err
}

// serve lets the API server answer, and checks what was written.
func (a *arena) serve(m *member, req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return a.api.RoundTrip(req)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := lease(a.t, a.api)
	answer, err := a.api.RoundTrip(req)
	after := lease(a.t, a.api)
	if err != nil || after == nil || before != nil && before.ResourceVersion == after.ResourceVersion {
		return answer, err
	}
	a.checkLocked(m, before, after)
	a.since, a.writer = time.Now(), m
	return answer, err
}

func (a *arena) checkLocked(m *member, before, after *coordinationv1.Lease) {
	for i, leading := range a.terms {
		if i != m.number && leading != nil && leading.Trusted() == nil {
			a.t.Errorf("L1: %d writes while %d trusts its term:\n%+v\n%+v", m.number, i, before.Spec, after.Spec)
		}
	}
	if before == nil || after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) || *after.Spec.HolderIdentity == "" {
		return
	}
	still := time.Since(a.since)
	if m.number < ourNumber && a.writer != m && *before.Spec.HolderIdentity != "" && still < time.Duration(*before.Spec.LeaseDurationSeconds)*time.Second {
		a.t.Errorf("L7: %d takes a record that has been still for %s:\n%+v", m.number, still, before.Spec)
	}
}

func (m *member) name() string {
	return []string{"ours", "twin", "twin", "their 3", "their 4"}[m.number]
}

// lead leads until it is stopped or the term is lost.
func (m *member) lead(take, work context.Context) error {
	m.arena.mu.Lock()
	m.arena.terms[m.number] = term.FromContext(work)
	m.arena.mu.Unlock()
	<-take.Done()
	return nil
}

// toggle starts or stops it.
func (m *member) toggle() {
	if m.stop != nil {
		m.stop()
		m.stop = nil
		return
	}
	ctx, cancel := context.WithCancel(logr.NewContext(m.arena.t.Context(), logr.Discard()))
	var running sync.WaitGroup
	running.Go(func() {
		if m.number < ourNumber {
			if err := m.Run(ctx, m.lead); err != nil && !strings.Contains(err.Error(), "has not returned since") {
				m.arena.t.Error(err)
			}
			return
		}
		for ctx.Err() == nil {
			(&theirs{replica: m.replica}).run(ctx, m.arena.t, m.name(), m.number%2 == 0)
		}
	})
	m.stop = func() {
		cancel()
		running.Wait()
	}
}

// happen applies one event to a member, or to all.
func (a *arena) happen(what, whom byte, d time.Duration) {
	m := a.members[int(whom)%len(a.members)]
	switch what % 9 {
	case 0:
		m.toggle()
	case 1:
		m.cut()
	case 2:
		m.hang()
	case 3:
		m.mend()
	case 4:
		m.before.Store(int64(d / 4))
	case 5:
		m.after.Store(int64(d / 4))
	case 6:
		m.lose.Store(true)
	case 7:
		a.api.CutWatches()
	case 8:
		a.api.Lag(d / 16)
	}
	time.Sleep(d)
}

// FuzzL1_Electors checks L1 and L7 with any events on the connections: no process writes the Lease
// while another one of ours trusts a term, and none of ours takes a record before its duration is
// over.
func FuzzL1_Electors(f *testing.F) {
	f.Add([]byte{0, 0, 200, 0, 0, 10, 0, 1, 200, 0, 2, 200, 0, 3, 200, 0, 4, 250})
	f.Add([]byte{1, 0, 255, 3, 0, 255, 1, 1, 255, 3, 1, 255, 1, 2, 255, 3, 2, 255, 1, 3, 255, 1, 4, 255, 1, 0, 255})
	f.Add([]byte{6, 0, 200, 5, 1, 200, 4, 2, 200, 3, 0, 255, 7, 0, 1, 8, 0, 100, 2, 0, 255, 2, 1, 255, 3, 0, 255, 3, 1, 255})
	f.Add([]byte{5, 0, 200, 5, 1, 200, 5, 2, 200, 1, 3, 255, 1, 4, 255, 3, 3, 60, 3, 4, 255, 4, 0, 255, 4, 1, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(t)
			time.Sleep(5 * time.Second)
			for i := 0; i+2 < min(len(script), 300); i += 3 {
				a.happen(script[i], script[i+1], time.Duration(script[i+2])*100*time.Millisecond)
			}
			for _, m := range a.members {
				m.mend()
				if m.stop != nil {
					m.stop()
				}
			}
			time.Sleep(time.Minute) // slow requests that nothing waits for
		})
	})
}
