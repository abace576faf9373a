// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// duel is a holder and a rival of one Lease, each with its own clocks, and the real time.
type duel struct {
	o                Options
	real             time.Duration
	holderRate, rate float64 // of the holder's and the rival's monotonic clock
	clock            instant // the holder's
	mono             time.Duration
	setClocks        bool // else the monotonic clock may stand still: one of both always runs

	stored  *coordinationv1.Lease
	holder  trust
	rival   lease.Rival
	timed   lease.Version         // as the rival saw it last
	sent    instant               // a renewal under way
	request *coordinationv1.Lease // with the version that it is based on
	written bool                  // and it was stored
	taken   bool
}

func newDuel(holderRate, rivalRate byte, setClocks bool) *duel {
	o := Options{Lease: "operator", Namespace: "default"}.withDefaults()
	rate := func(b byte) float64 { return 0.95 + 0.1*float64(b)/255 } // a tenth apart at most
	d := &duel{o: o, holderRate: rate(holderRate), rate: rate(rivalRate), setClocks: setClocks}
	d.stored = lease.Held(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: "1"}}, "holder", o.LeaseDuration, time.Time{})
	d.holder = trust{lasts: o.fence()}
	d.rival = lease.Rival{Least: o.LeaseDuration}
	d.see()
	return d
}

func (d *duel) see() {
	d.rival.See(d.stored, false, d.mono)
	d.timed = lease.VersionOf(d.stored)
}

// pass lets time pass. While asleep, the holder's monotonic clock stands still.
func (d *duel) pass(t time.Duration, asleep bool) {
	d.real += t
	d.mono += time.Duration(float64(t) * d.rate)
	d.clock.wall += time.Duration(float64(t) * d.holderRate)
	if !asleep {
		d.clock.mono += time.Duration(float64(t) * d.holderRate)
	}
}

func (d *duel) step(t *testing.T, op byte, by time.Duration) {
	switch op % 8 {
	case 0:
		d.pass(by, false)
	case 1: // send
		if d.request == nil && !d.holder.lost(d.clock) {
			d.sent, d.request, d.written = d.clock, d.stored, false
		}
	case 2: // store
		if d.request != nil && !d.written && lease.VersionOf(d.request) == lease.VersionOf(d.stored) {
			d.stored, d.written = d.next(), true
		}
	case 3: // answer, or lose the answer
		if d.written && by > 0 {
			d.holder.renew(d.sent, d.clock)
		}
		d.request = nil
	case 4:
		d.see()
	case 5: // until the rival acts
		d.pass(max(0, time.Duration(float64(d.rival.Left(d.mono))/d.rate)+1), !d.setClocks && by%2 == 1)
	case 6:
		if d.setClocks {
			d.clock.wall += by - 5*time.Second
		}
	case 7:
		d.pass(by, !d.setClocks)
	}
	if d.rival.Left(d.mono) <= 0 && d.timed == lease.VersionOf(d.stored) {
		d.stored, d.taken = d.next(), true
	}
	holder := d.holder // a copy: it does not look now
	if d.taken && !holder.lost(d.clock) {
		t.Fatalf("after %s the rival leads, and the holder trusts its term since %v, now %v", d.real, d.holder.sent, d.clock)
	}
}

func (d *duel) next() *coordinationv1.Lease {
	l := d.stored.DeepCopy()
	n, _ := strconv.Atoi(l.ResourceVersion)
	l.ResourceVersion = strconv.Itoa(n + 1)
	return l
}

// FuzzL1_Trust checks L1 with any order of requests, answers and losses: two processes never trust
// a term at the same time. One of the holder's clocks always runs, and the clocks' rates differ by
// a tenth at most.
func FuzzL1_Trust(f *testing.F) {
	// The rates far apart.
	f.Add(byte(0), byte(255), true, []byte{1, 1, 2, 1, 4, 1, 3, 1, 5, 0})
	// asleep.
	f.Add(byte(0), byte(255), false, []byte{1, 1, 2, 1, 4, 1, 3, 1, 5, 1})
	// A slow answer, a clock set back.
	f.Add(byte(128), byte(128), true, []byte{1, 1, 2, 1, 4, 1, 0, 50, 3, 1, 0, 1, 6, 0, 5, 0})
	// A renewal that the rival sees late.
	f.Add(byte(128), byte(128), true, []byte{1, 1, 2, 1, 0, 100, 3, 1, 5, 0, 4, 1, 5, 0})
	// A slow request.
	f.Add(byte(128), byte(128), false, []byte{1, 1, 0, 100, 2, 1, 4, 1, 0, 100, 3, 1, 7, 60})
	f.Fuzz(func(t *testing.T, holderRate, rivalRate byte, setClocks bool, steps []byte) {
		d := newDuel(holderRate, rivalRate, setClocks)
		for i := 0; i+1 < len(steps); i += 2 {
			d.step(t, steps[i], time.Duration(steps[i+1])*100*time.Millisecond)
		}
	})
}

func TestL1_TheRatesOfTheClocksMayBeATenthApart(t *testing.T) {
	d := newDuel(0, 255, true)
	d.step(t, 5, 0)
	testkit.Equal(t, d.taken, true)
	testkit.AtMost(t, d.real, d.o.LeaseDuration)
}

// TestL1_TrustThatIsOverStaysSo: it stays over when the clock that ended it is set back.
func TestL1_TrustThatIsOverStaysSo(t *testing.T) {
	h := trust{lasts: time.Second}
	for _, test := range []struct {
		now  instant
		over bool
	}{{instant{0, 0}, false}, {instant{1, -1e9}, false}, {instant{1, 1e9}, true}, {instant{2, 1}, true}} {
		testkit.Equal(t, h.lost(test.now), test.over, fmt.Sprintf("at %v it is over", test.now))
	}
	h = trust{lasts: time.Second}
	testkit.Equal(t, h.lost(instant{1e9, 0}), true, "the monotonic clock does not count")
}

// TestL1_AuthorsForgetWhatCannotCome: a write without an answer counts as ours until a later one is
// answered.
func TestL1_AuthorsForgetWhatCannotCome(t *testing.T) {
	a := authors{identity: "a"}
	began := time.Unix(1, 0)
	at := func(n int) *coordinationv1.Lease {
		return lease.Held(&coordinationv1.Lease{}, "a", time.Second, began.Add(time.Duration(n)*time.Second))
	}
	for n := range 2 * maxUnanswered {
		a.wrote(began.Add(time.Duration(n) * time.Second))
	}
	if a.mine(at(0)) || !a.mine(at(maxUnanswered)) || !a.mine(at(2*maxUnanswered-1)) || a.mine(at(2*maxUnanswered)) {
		t.Error("the wrong writes are remembered")
	}
	a.answered(began)
	if !a.mine(at(0)) || a.mine(at(maxUnanswered)) || a.mine(nil) || a.mine(&coordinationv1.Lease{}) {
		t.Error("after an answer, the wrong ones are")
	}
	testkit.Equal(t, a.mine(lease.Held(at(0), "b", time.Second, began)), false, "what b holds is ours")
}

// FuzzL5_Term checks L5: a term goes through its states in one direction. A renewal counts from
// when it was sent. The work always has some time to stop.
func FuzzL5_Term(f *testing.F) {
	f.Add([]byte{0, 20, 1, 0, 0, 120, 2, 0, 0, 10})   // renewed, and lost in time
	f.Add([]byte{0, 20, 1, 1, 0, 255, 0, 255, 2, 0})  // suspended, with an answer under way
	f.Add([]byte{3, 0, 1, 0, 0, 200, 2, 0})           // closing
	f.Add([]byte{0, 50, 5, 0, 0, 50, 4, 200, 1, 200}) // taken; asleep; the wall clock is set
	f.Fuzz(func(t *testing.T, steps []byte) {
		o := Options{Lease: "operator", Namespace: "default"}.withDefaults()
		term, now := trustOf(&o, instant{}), instant{}
		for i := 0; i+1 < len(steps); i += 2 {
			was, by := term, time.Duration(steps[i+1])*100*time.Millisecond
			switch steps[i] % 6 {
			case 0:
				now.mono, now.wall = now.mono+by, now.wall+by
			case 1: // sent ago, but not before the last one
				sent := instant{max(now.mono-by, was.sent.mono), max(now.wall-by, was.sent.wall)}
				if renewed := term.renew(sent, now); renewed && (was.state != isHeld || term.sent != sent || now.mono-was.sent.mono >= was.lasts) {
					t.Fatalf("%+v is renewed at %v, by what was sent at %v: %+v", was, now, sent, term)
				}
			case 2:
				if lost := term.lost(now); !lost && was.state != isEnded && now.mono-was.sent.mono >= was.lasts {
					t.Fatalf("%+v is not lost at %v", was, now)
				}
			case 3:
				if term.state == isHeld {
					term.state = isClosing
				}
			case 4:
				now.wall += by - 10*time.Second
			case 5:
				term.lose(now)
			}
			if term.state < was.state || was.state == isLost && term != was {
				t.Fatalf("%+v becomes %+v", was, term)
			}
			if term.state == isLost && (term.lostAt.mono > now.mono || term.patience(term.lostAt) < o.LeaseDuration-o.lasts()) {
				t.Fatalf("%+v has %s to stop", term, term.patience(term.lostAt))
			}
			if term.over(now) && term.state == isHeld && !(&term).lost(now) {
				t.Fatalf("the trust of %+v is over at %v, and it is not lost", term, now)
			}
		}
	})
}
