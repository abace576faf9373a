// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/client"
)

// lock is client-go's lock on a Lease, which also notes since when the Lease is ours, and who else holds it. Only client-go's
// elector calls its methods, one at a time, except for renewed, leadership, lose and close.
type lock struct {
	*resourcelock.LeaseLock
	written *written
	leader  func(holder string) // called when somebody else holds the Lease, at first and when it is another one
	holder  string              // as last read or written
	trust   time.Duration       // for how long the Lease may be taken as ours after a request that made it ours was sent
	fence   time.Duration       // and for how long requests pass: later, and ended by two clocks, see client.Term
	// lost is called then (client-go counts from the answer, which may be late, or from when it wakes up), and when somebody else
	// holds the Lease that was ours (client-go would go on until RenewDeadline).
	lost func()

	mu    sync.Mutex // guards what follows
	last  time.Time
	term  *client.Term // as timer, nil until the Lease is ours
	timer *time.Timer  // to lose
}

// renewed returns when the last request that made the Lease ours was sent, or the zero time if none was answered yet.
func (l *lock) renewed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// leadership returns the term, nil until the Lease is ours.
func (l *lock) leadership() *client.Term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term
}

// held takes down that a request sent at this time has made the Lease ours.
func (l *lock) held(sent time.Time) {
	l.holder = l.Identity()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = sent
	if l.term == nil {
		l.term = client.NewTerm(client.Token{Lease: l.written.lease.UID, ResourceVersion: l.written.lease.ResourceVersion}, sent, l.fence)
		l.timer = time.AfterFunc(time.Until(sent.Add(l.trust)), l.lose)
	} else {
		l.term.Extend(sent)
		l.timer.Reset(time.Until(sent.Add(l.trust)))
	}
}

// lose ends the term.
func (l *lock) lose() {
	l.leadership().End(ErrLost)
	l.lost()
}

// close stops the timer.
func (l *lock) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}

// answerLimit is for how long a request that may make the Lease ours is waited for when the campaign has been stopped.
const answerLimit = time.Second

// untilAnswered returns a context for a request that may make the Lease ours. It outlives ctx by answerLimit: if nobody waited
// for the answer, nobody would know that there is a Lease to release, and rivals would wait for it to expire.
func (l *lock) untilAnswered(ctx context.Context) (context.Context, func()) {
	if !l.renewed().IsZero() {
		return ctx, func() {} // it is ours already: releasing it does not depend on the answer
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(answerLimit, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// Create makes the Lease, held by us.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.untilAnswered(ctx)
	defer cancel()
	sent := time.Now()
	err := l.LeaseLock.Create(ctx, r)
	if err == nil {
		l.held(sent)
	}
	return err
}

// Update acquires or renews the Lease.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.untilAnswered(ctx)
	defer cancel()
	sent := time.Now()
	err := l.LeaseLock.Update(ctx, r)
	if err == nil {
		l.held(sent)
	}
	return err
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err != nil || record.HolderIdentity == l.holder {
		return record, raw, err
	}
	l.holder = record.HolderIdentity
	if l.holder != "" && l.holder != l.Identity() {
		l.leader(l.holder)
		if !l.renewed().IsZero() {
			l.lose()
		}
	}
	return record, raw, nil
}
