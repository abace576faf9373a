// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

var _ resourcelock.Interface = (*Observed)(nil)

// Identity implements resourcelock.Interface.
func (o *Observed) Identity() string { return o.lock.Identity() }

// Describe implements resourcelock.Interface.
func (o *Observed) Describe() string { return o.lock.Describe() }

// RecordEvent implements resourcelock.Interface.
func (o *Observed) RecordEvent(s string) { o.lock.RecordEvent(s) }

// Get implements resourcelock.Interface. What it reads may end the term.
func (o *Observed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.lock.Get(term.Without(ctx))
	if err == nil || apierrors.IsNotFound(err) {
		o.saw(record)
	}
	return record, raw, err
}

// saw takes down what the record is like, nil if there is none.
func (o *Observed) saw(record *resourcelock.LeaderElectionRecord) {
	o.mu.Lock()
	o.read = true
	t := o.tenure
	o.ours = record != nil && record.HolderIdentity == o.o.Identity && (o.leases == nil || o.isOursLocked(t))
	taken := t != nil && t.state == isHeld && !o.ours
	leader := ""
	if record != nil && record.HolderIdentity != o.leader {
		o.leader = record.HolderIdentity
		leader = o.leader
	}
	o.mu.Unlock()
	if taken {
		t.term.End(ErrLost)
		o.lose(t)
	}
	if leader != "" && leader != o.o.Identity && o.o.Hooks.Leader != nil {
		o.o.Hooks.Leader(o.o.Lease, leader)
	}
}

// isOursLocked says whether the Lease as last answered is of our term: the same Lease, and last renewed by this process.
func (o *Observed) isOursLocked(t *tenure) bool {
	l := o.leases.last
	return o.authors.mine(l) && (t == nil || l.UID == t.term.Token().Lease)
}

// Create implements resourcelock.Interface.
func (o *Observed) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != o.o.Identity {
		return o.lock.Create(term.Without(ctx), record)
	}
	return o.hold(ctx, record, o.lock.Create)
}

// Update implements resourcelock.Interface. It refuses what would extend a term that is lost, release a Lease that is not ours, or
// release one under which work goes on; and, as Create does, to hold the Lease for less than ObserveOptions.LeaseDuration.
func (o *Observed) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch record.HolderIdentity {
	case o.o.Identity:
		return o.hold(ctx, record, o.lock.Update)
	case "":
		return o.release(ctx, record)
	}
	return o.lock.Update(term.Without(ctx), record)
}

// hold makes a request that wins or renews the Lease.
func (o *Observed) hold(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if says := time.Duration(record.LeaseDurationSeconds) * time.Second; says < o.o.LeaseDuration.Truncate(time.Second) {
		return fmt.Errorf("the Lease %s: the elector's LeaseDuration is %s, and that of ObserveOptions is %s: a term would be trusted for too long; "+
			"give both the same durations", o, says, o.o.LeaseDuration)
	}
	sent, at := time.Now(), o.now()
	renews, slow, err := o.mayHold(at)
	if err != nil {
		return fmt.Errorf("the Lease %s: %w", o, err)
	}
	renewTime := record.RenewTime.Truncate(time.Microsecond)
	o.wrote(renewTime)
	err = write(term.Without(ctx), record)
	if renews != nil && (err == nil || ctx.Err() == nil) && o.o.Hooks.Renewed != nil {
		o.o.Hooks.Renewed(hook.LeaseRenewal{Lease: o.o.Lease, Took: time.Since(sent), Slowpath: slow, Err: err})
	}
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			o.refused(renewTime)
		}
		return err
	}
	return o.held(renews, record, sent, at, renewTime)
}

// mayHold returns the term that is to be renewed, nil if there is to be a new one, and whether the record was read before.
func (o *Observed) mayHold(at instant) (renews *tenure, slow bool, err error) {
	o.mu.Lock()
	slow, o.read = o.read, false
	t := o.tenure
	late := t != nil && t.state == isHeld && t.trust.lost(at)
	switch {
	case t == nil || late:
	case t.state == isHeld && !t.closes:
		renews = t
	default: // also what was to be released, and was not: nothing leads under it any more
		err = t.goesOnLocked()
	}
	if err == nil && renews == nil && o.leases != nil {
		err = o.leases.namesakeLocked(at)
	}
	o.mu.Unlock()
	if late {
		o.lose(t)
		err = ErrLost
	}
	return renews, slow, err
}

func (o *Observed) wrote(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.authors.wrote(at)
}

func (o *Observed) refused(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.authors.refused(at)
}

// held takes down that the Lease is ours since a request was sent.
func (o *Observed) held(renews *tenure, record resourcelock.LeaderElectionRecord, sent time.Time, at instant, renewTime time.Time) error {
	o.mu.Lock()
	o.authors.answered(renewTime)
	o.ours, o.leader = true, o.o.Identity
	if renews != nil {
		renewed := o.renewedLocked(renews, sent, at)
		o.mu.Unlock()
		if !renewed {
			return fmt.Errorf("the Lease %s was renewed too late: %w", o, ErrLost)
		}
		return nil
	}
	token := term.Token{
		Lease: types.UID(o.lock.Describe()), ResourceVersion: strconv.FormatInt(record.AcquireTime.UnixMicro(), 10), Holder: o.o.Identity,
	}
	var left *term.Handover
	if l := o.leases; l != nil {
		token.Lease, token.ResourceVersion = l.last.UID, l.last.ResourceVersion
		left, l.left = l.left, nil
	}
	before := o.tenure
	o.tenure = o.begin(token, sent, at, left)
	o.mu.Unlock()
	if before != nil {
		before.lost.Stop()
		before.over.Stop()
		before.term.End(errReturned)
	}
	if o.o.Hooks.Acquired != nil {
		o.o.Hooks.Acquired(o.o.Lease)
	}
	return nil
}

// release gives the Lease up if it is ours and nothing leads any more.
func (o *Observed) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	o.mu.Lock()
	ours, t := o.ours, o.tenure
	o.mu.Unlock()
	if !ours {
		return fmt.Errorf("the Lease %s is not ours, so it is not released", o)
	}
	var err error
	if t != nil {
		err = o.close(ctx, t)
	}
	if err == nil {
		err = o.lock.Update(term.Without(ctx), record)
	}
	if err == nil {
		o.mu.Lock()
		o.ours = false
		o.mu.Unlock()
	}
	if o.o.Hooks.Released != nil && !apierrors.IsConflict(err) { // then the elector tries again
		o.o.Hooks.Released(o.o.Lease, err)
	}
	return err
}
