// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

var _ resourcelock.Interface = (*Observed)(nil)

// Observed is a host's lock that yields our terms: a resourcelock.Interface for client-go's
// elector. The methods of the lock are called by the elector, one after another; the others are
// safe for concurrent use.
type Observed struct {
	o       Options // of an elector with the same durations
	lock    resourcelock.Interface
	leases  *watchedLeases // nil: the lock is no LeaseLock
	now     clock
	current atomic.Pointer[tenure] // the last one; nil: there was none

	// Only the elector's goroutine uses what follows.
	authors authors
	ours    bool   // the record, as last read or written
	read    bool   // it was read since the last write
	leader  string // as last reported
}

// String names the Lease.
func (o *Observed) String() string { return o.lock.Describe() }

// Name is that of the Check, such as "leader-election-operator".
func (o *Observed) Name() string { return "leader-election-" + o.o.Lease }

// Check is [Elector.Check].
func (o *Observed) Check(*http.Request) error { return o.current.Load().check() }

// Lead calls lead in the term that the elector has won, with the contexts that type [Lead]
// describes. Call it in OnStartedLeading, with the context that this is given, from one goroutine
// or several. It returns when lead has: what lead returned, nil after a stop, or ErrLost when the
// term was lost. RunOrDie may return before, if the Lease was lost or is not to be released: a host
// that exits then should wait for Lead.
func (o *Observed) Lead(ctx context.Context, lead Lead) error {
	t := o.current.Load()
	if t != nil {
		t.ranBy(ctx.Done())
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case t == nil:
		return errNoLease
	}
	err := t.lead(ctx, lead)
	if err == nil && t.expire() {
		return fmt.Errorf("the Lease %s: %w", o, ErrLost)
	}
	return err
}

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

// saw notes the record, nil if there is none.
func (o *Observed) saw(record *resourcelock.LeaderElectionRecord) {
	o.read = true
	t := o.current.Load()
	o.ours = record != nil && record.HolderIdentity == o.o.Identity && (o.leases == nil || o.isOurs(t))
	if t != nil && !o.ours {
		t.taken()
	}
	if record == nil || record.HolderIdentity == o.leader {
		return
	}
	o.leader = record.HolderIdentity
	if o.leader != "" && o.leader != o.o.Identity && o.o.Hooks.Leader != nil {
		o.o.Hooks.Leader(o.o.Lease, o.leader)
	}
}

// isOurs reports whether the Lease as last answered is of our term: the same Lease, and last
// renewed by this process.
func (o *Observed) isOurs(t *tenure) bool {
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

// Update implements resourcelock.Interface. It refuses what would extend a term that is lost,
// release a Lease that is not ours, or release one under which work goes on; and, as Create does,
// to hold the Lease for less than ObserveOptions.LeaseDuration.
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
	slow := o.read
	o.read = false
	sent := o.now.moment()
	t, err := o.mayHold()
	if err != nil {
		return fmt.Errorf("the Lease %s: %w", o, err)
	}
	at := record.RenewTime.Truncate(time.Microsecond)
	o.authors.wrote(at)
	err = write(term.Without(ctx), record)
	if t != nil && (err == nil || ctx.Err() == nil) && o.o.Hooks.Renewed != nil {
		o.o.Hooks.Renewed(hook.LeaseRenewal{Lease: o.o.Lease, Took: time.Since(sent.time), Slowpath: slow, Err: err})
	}
	if err != nil {
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			o.authors.refused(at)
		}
		return err
	}
	o.authors.answered(at)
	o.ours, o.leader = true, o.o.Identity
	switch {
	case t == nil:
		o.begin(record, sent)
	case !t.renew(sent):
		return fmt.Errorf("the Lease %s was renewed too late: %w", o, ErrLost)
	}
	return nil
}

// mayHold returns the term that a write of the Lease renews, nil if it begins one.
func (o *Observed) mayHold() (*tenure, error) {
	if t := o.current.Load(); t != nil {
		if renews, err := t.renews(); renews || err != nil {
			return t, err
		}
	}
	if o.leases == nil {
		return nil, nil //nolint:nilnil // it begins one
	}
	return nil, o.leases.namesake()
}

// begin makes the term that a write has won.
func (o *Observed) begin(record resourcelock.LeaderElectionRecord, sent moment) {
	token := term.Token{
		Lease: types.UID(o.lock.Describe()), ResourceVersion: strconv.FormatInt(record.AcquireTime.UnixMicro(), 10), Holder: o.o.Identity,
	}
	var left *term.Handover
	if l := o.leases; l != nil {
		token.Lease, token.ResourceVersion = l.last.UID, l.last.ResourceVersion
		left, l.left = l.left, nil
	}
	if before := o.current.Load(); before != nil {
		before.end(errReturned)
	}
	t := &tenure{o: &o.o, name: o.String(), now: o.now, lost: o.lost}
	o.current.Store(t.begin(token, sent, left))
	if o.o.Hooks.Acquired != nil {
		o.o.Hooks.Acquired(o.o.Lease)
	}
}

func (o *Observed) lost() {
	if o.o.Hooks.Lost != nil {
		o.o.Hooks.Lost(o.o.Lease)
	}
}

// release gives the Lease up if it is ours and nothing leads any more.
func (o *Observed) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if !o.ours {
		return fmt.Errorf("the Lease %s is not ours, so it is not released", o)
	}
	var err error
	if t := o.current.Load(); t != nil {
		err = t.close(ctx)
	}
	if err == nil {
		err = o.lock.Update(term.Without(ctx), record)
	}
	if err == nil {
		o.ours = false
	}
	if o.o.Hooks.Released != nil && !apierrors.IsConflict(err) { // then the elector tries again
		o.o.Hooks.Released(o.o.Lease, err)
	}
	return err
}
