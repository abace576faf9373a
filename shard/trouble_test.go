// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
)

// TestP2_OneIdentityTwice: two replicas have the same Identity. After a loss, one of them does not
// take the Lease of the other one for a dead member's.
func TestP2_OneIdentityTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		first := f.start("a", shard.Options{})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		second := f.start("a", shard.Options{})
		halves := func(map[string]int) bool {
			return len(first.Status().Owned) == 128 && len(second.Status().Owned) == 128
		}
		f.passUntil("two members", 30*time.Second, halves)
		first.cut.Store(true)
		f.pass(30 * time.Second)
		first.cut.Store(false)
		f.passUntil("two members again", time.Minute, halves)
	})
}

// TestGroup_JoinsAgain: after a second call of Run, the SlotCache has the slots of this membership
// only.
func TestGroup_JoinsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		k := newSlotCache()
		a := f.start("a", shard.Options{SlotCache: k})
		f.passUntil("one member", 3*time.Second, even(1, 256))
		a.stop()
		testkit.Equal(t, <-a.done, nil, "after it left")
		testkit.Equal(t, k.keeps(), 0, "after it left")
		f.all = nil
		f.start("b", shard.Options{})
		f.passUntil("another member", 3*time.Second, even(1, 256))
		a.over.Store(false)
		f.run(a)
		f.passUntil("two members", 30*time.Second, even(2, 256))
		f.pass(5 * time.Second)
		testkit.Equal(t, k.keeps(), 128, "a keeps slots")
	})
}

// stall makes the watches of a replica silent, without an error. Other requests pass.
type stall struct {
	http.RoundTripper

	of string // part of the query
	on *atomic.Bool
}

func (s stall) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }

func (s stall) RoundTrip(h *http.Request) (*http.Response, error) {
	answer, err := s.RoundTripper.RoundTrip(h)
	if query := h.URL.RawQuery; err == nil && strings.Contains(query, "watch=") && strings.Contains(query, s.of) {
		answer.Body = &stalled{answer.Body, s.on, h.Context().Done()}
	}
	return answer, err
}

type stalled struct {
	io.ReadCloser

	on  *atomic.Bool
	end <-chan struct{}
}

func (s *stalled) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.on.Load() {
		<-s.end
		return 0, context.Canceled
	}
	return n, err
}

// TestP2_AWatchThatStalls: a member whose watches show nothing, without an error, takes part in
// each change after at most a LeaseDuration for each of its steps.
func TestP2_AWatchThatStalls(t *testing.T) {
	for name, of := range map[string]string{"all": "", "the group's Lease": "fieldSelector", "the members' Leases": "labelSelector"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				var on atomic.Bool
				f.startSpecial(special{name: "a", wrap: func(next http.RoundTripper) http.RoundTripper { return stall{next, of, &on} }})
				b, d := f.start("b", shard.Options{}), f.start("d", shard.Options{})
				f.passUntil("three members", time.Minute, even(3, 256))
				f.pass(20 * time.Second)
				on.Store(true)
				b.stop()
				took := f.passUntil("two members", 40*time.Second, even(2, 256))
				c := f.start("c", shard.Options{})
				again := f.passUntil("a new member", 90*time.Second, even(3, 256))
				c.cut.Store(true)
				dead := f.passUntil("a dead member", time.Minute, even(2, 256))
				name := d.member(t)
				d.cut.Store(true)
				f.remove(name)
				deleted := f.passUntil("a dead member without a Lease", time.Minute, even(1, 256))
				t.Logf("after %s, %s, %s and %s", took, again, dead, deleted)
			})
		})
	}
}

// TestP2_TheOwnLeaseIsDeletedUnseen: a member learns from its own read that it has a Lease again.
func TestP2_TheOwnLeaseIsDeletedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var on atomic.Bool
		a := f.startSpecial(special{name: "a", wrap: func(next http.RoundTripper) http.RoundTripper { return stall{next, "labelSelector", &on} }})
		f.passUntil("one member", 30*time.Second, even(1, 256))
		f.pass(20 * time.Second)
		before := a.Status().Member
		on.Store(true)
		f.remove(a.member(t))
		f.passUntil("the next session", time.Minute, func(counts map[string]int) bool {
			return counts["a"] == 256 && a.Status().Member != before
		})
	})
}

// counted counts requests of one method.
type counted struct {
	http.RoundTripper

	method string
	n      *atomic.Int32
}

func (c counted) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == c.method {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestP2_ADeletedLeaseIsGone: a member deletes the Lease of a dead one once, also if its watch does
// not show that.
func TestP2_ADeletedLeaseIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		var on atomic.Bool
		var deletions atomic.Int32
		f.startSpecial(special{name: "a", wrap: func(next http.RoundTripper) http.RoundTripper {
			return stall{counted{next, http.MethodDelete, &deletions}, "labelSelector", &on}
		}})
		b := f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		f.pass(20 * time.Second)
		on.Store(true)
		b.cut.Store(true)
		f.passUntil("one member", time.Minute, even(1, 256))
		f.pass(time.Minute)
		testkit.Equal(t, deletions.Load(), 1, "deletions of one Lease")
	})
}

// backup is a second API server, which gets the same writes until it is taken, and is in the place
// of the first one when it is restored.
type backup struct {
	*sim.Server

	mu              sync.Mutex
	taken, restored bool
}

type mirror struct {
	http.RoundTripper

	to *backup
}

func (m mirror) WrappedRoundTripper() http.RoundTripper { return m.RoundTripper }

func (m mirror) RoundTrip(h *http.Request) (*http.Response, error) {
	m.to.mu.Lock()
	defer m.to.mu.Unlock()
	switch {
	case m.to.restored:
		return m.to.RoundTrip(h)
	case m.to.taken || h.Method == http.MethodGet:
		return m.RoundTripper.RoundTrip(h)
	}
	body, err := io.ReadAll(h.Body)
	if err != nil {
		return nil, err
	}
	h.Body = io.NopCloser(bytes.NewReader(body))
	twin := h.Clone(h.Context())
	twin.Body = io.NopCloser(bytes.NewReader(body))
	answer, err := m.to.RoundTrip(twin)
	if err != nil {
		return nil, err
	}
	_ = answer.Body.Close()
	return m.RoundTripper.RoundTrip(h)
}

// TestP2_ARestoredAPIServer: its data is from an older backup. The processes end, because their
// caches have objects that do not exist. New ones begin with the older assignment.
func TestP2_ARestoredAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := &backup{Server: sim.NewServer(sim.Leases, sim.ConfigMaps)}
		defer old.Close()
		f := newFleet(t)
		defer f.end()
		join := func(name string) *replica {
			return f.startSpecial(special{name: name, wrap: func(next http.RoundTripper) http.RoundTripper { return mirror{next, old} }})
		}
		join("a")
		join("b")
		f.passUntil("two members", time.Minute, even(2, 256))
		f.pass(20 * time.Second)
		old.mu.Lock()
		old.taken = true
		old.mu.Unlock()
		if old.Version() != f.api.Version() {
			t.Fatalf("the backup has the version %s, want %s", old.Version(), f.api.Version())
		}
		join("c")
		f.passUntil("three members", time.Minute, even(3, 256))
		f.pass(time.Minute)
		old.mu.Lock()
		old.restored = true
		old.mu.Unlock()
		f.api.CutWatches()
		f.pass(40 * time.Second)
		for _, r := range f.all {
			if !r.over.Load() {
				t.Fatalf("%s goes on: %s", r.name, f.describe())
			}
			testkit.ErrorContains(t, <-r.done, "was restored from a backup", r.name)
		}
		join("d")
		join("e")
		took := f.passUntil("two new members", time.Minute, even(2, 256))
		t.Logf("after %s", took)
	})
}

// lags answers the next reads of the group's Lease with an older version, as a slow replica behind
// a load balancer does.
type lags struct {
	http.RoundTripper

	reads atomic.Int32
	from  atomic.Pointer[sim.Server]
}

func (l *lags) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

func (l *lags) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Method == http.MethodGet && strings.HasSuffix(h.URL.Path, "/leases/web") && l.reads.Add(-1) >= 0 {
		return l.from.Load().RoundTrip(h)
	}
	return l.RoundTripper.RoundTrip(h)
}

// TestP2_AReplicaThatLags: one answer with an older version ends no member. A second one does.
func TestP2_AReplicaThatLags(t *testing.T) {
	for reads, ends := range map[int32]bool{1: false, 2: true} {
		t.Run(fmt.Sprint(reads, " reads"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := &backup{Server: sim.NewServer(sim.Leases, sim.ConfigMaps)}
				defer old.Close()
				f := newFleet(t)
				defer f.end()
				l := &lags{}
				l.from.Store(old.Server)
				a := f.startSpecial(special{name: "a", wrap: func(next http.RoundTripper) http.RoundTripper {
					l.RoundTripper = mirror{next, old}
					return l
				}})
				f.passUntil("one member", time.Minute, even(1, 256))
				old.mu.Lock()
				old.taken = true
				old.mu.Unlock()
				f.start("b", shard.Options{})
				f.passUntil("two members", time.Minute, even(2, 256))
				for range 3 { // not in a row
					f.pass(30 * time.Second)
					l.reads.Store(reads)
					f.pass(30 * time.Second)
					if a.over.Load() != ends {
						t.Fatalf("its end: %t", a.over.Load())
					}
					if ends {
						testkit.ErrorContains(t, <-a.done, "was restored from a backup")
						return
					}
				}
			})
		})
	}
}

// TestGroup_MissingRights: one sentence names the verb and what to grant, and a replica that cannot
// use its Lease never seems to be a member.
func TestGroup_MissingRights(t *testing.T) {
	const grant = "to create, get, list, watch, update and delete leases"
	for verb, want := range map[string]struct {
		owned int
		line  string
	}{
		"create": {0, grant},
		"get":    {0, grant},
		"update": {0, grant},
		"list":   {0, "the Leases of the group cannot be listed"},
		"watch":  {256, "the Leases of the group cannot be read"},
		"delete": {256, ""},
		"patch":  {256, ""},
	} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.end()
				cause := fmt.Errorf("User \"web\" cannot %s resource \"leases\"", verb)
				of := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
				f.api.Add(fault.Rule{Match: fault.Match{Verbs: []string{verb}}, Refuse: apierrors.NewForbidden(of, "", cause)})
				var log testkit.Buffer
				r := f.startSpecial(special{name: "a", log: &log})
				f.pass(time.Minute)
				testkit.Equal(t, len(r.Status().Owned), want.owned)
				testkit.Contains(t, log.String(), want.line)
				testkit.NotContains(t, log.String(), "the resourceName ")
				if n := lines(&log, "level=WARN"); n > 3 || n == 0 && want.line != "" {
					t.Errorf("%d lines in a minute:\n%s", n, log.String())
				}
			})
		})
	}
}
