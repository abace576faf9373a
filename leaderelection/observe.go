// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/term"
)

// ObserveOptions configures Observe. Set the durations of the host's elector (client-go's
// LeaderElectionConfig or component-base's LeaderElectionConfiguration). The defaults are theirs.
// An elector with a shorter LeaseDuration cannot acquire the Lease.
type ObserveOptions struct {
	// LeaseDuration is how long the Lease is held after its last renewal. Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long the host tries to renew before it gives up. The term is lost
	// RetryPeriod and RenewDeadline after the last successful renewal was sent. In the rest of
	// LeaseDuration, the work must stop. Default: 10 s.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two renewals. Default: 2 s.
	RetryPeriod time.Duration
	// Grace is how long the work of a lost term may go on before Check fails. Default: 20 s.
	Grace time.Duration
	// Hooks observes the terms, without Campaigning, TookOver, Cold and Trouble. Default: none.
	Hooks *hook.LeaderElection
}

// options returns the options of an elector with the same durations.
func (o ObserveOptions) options() Options {
	return Options{
		Lease: "host", Namespace: "host", Identity: "host", Grace: o.Grace, Hooks: o.Hooks,
		LeaseDuration: cmp.Or(o.LeaseDuration, 15*time.Second),
		RenewDeadline: cmp.Or(o.RenewDeadline, 10*time.Second),
		RetryPeriod:   cmp.Or(o.RetryPeriod, 2*time.Second),
	}.withDefaults()
}

// Validate applies the defaults and returns an error that names each wrong field.
func (o ObserveOptions) Validate() error {
	err := o.options().validateTimes()
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "leaderelection.Options.", "leaderelection.ObserveOptions."))
}

// Observe wraps the lock of a host's client-go elector. The elector then drives the terms and the
// fence of this package:
//
//	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, …)
//	observed, err := leaderelection.Observe(lock, leaderelection.ObserveOptions{…})
//	clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
//		Lock: observed, ReleaseOnCancel: true, …
//		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) {
//			err := observed.Lead(ctx, c.Lead)
//			…
//		}, …},
//	})
//
// The wrapper makes no request of its own. The elector acquires the Lease as usual. The term counts
// from the start of the last Create or Update that succeeded, and ends as follows:
//
//   - It is lost RetryPeriod and RenewDeadline after that start. (client-go counts from the
//     answer.) It is also lost when the Lease is deleted, created again or held by another process.
//     The work is cancelled with the cause ErrLost, and further renewals fail.
//   - A release (ReleaseOnCancel) waits until the work has returned, while the elector's request
//     lasts and the term is trusted. Otherwise it fails, and the Lease expires.
//   - A Lease of another process is not released.
//   - A release stores the last writes on the Lease, for the next term.
//
// Observe uses a copy of a *resourcelock.LeaseLock. Its [term.Token] has the UID of the Lease and
// its version at the acquisition. Other locks do not show the Lease:
//
//   - The token has the lock's description and the acquisition time in microseconds.
//   - A holder with the same identity is taken for this process.
//   - The last writes are not handed over.
//
// The error names an option, or a lock without an identity or a client.
func Observe(lock resourcelock.Interface, o ObserveOptions) (*Observed, error) {
	if lock == nil {
		return nil, errors.New("leaderelection.Observe: the lock is nil; resourcelock.New makes one")
	}
	if lock.Identity() == "" {
		return nil, errors.New("leaderelection.Observe: the lock has no identity; set ResourceLockConfig.Identity to a value that differs in each start of each process")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := &Observed{o: o.options(), lock: lock, now: newClock(wallTime), authors: authors{identity: lock.Identity()}}
	n.o.Lease, n.o.Identity = lock.Describe(), lock.Identity()
	if l, is := lock.(*resourcelock.LeaseLock); is {
		if l.Client == nil {
			return nil, errors.New("leaderelection.Observe: the LeaseLock has no client")
		}
		n.o.Lease = l.LeaseMeta.Name
		own := *l
		n.leases = &watchedLeases{
			LeasesGetter: l.Client, stamper: stamper{identity: lock.Identity()}, now: n.now,
			authors: &n.authors, current: &n.current, rival: rival{least: n.o.LeaseDuration},
		}
		own.Client, n.lock = n.leases, &own
	}
	return n, nil
}

var _ resourcelock.Interface = (*Observed)(nil)

// lock is an alias that keeps the embedded field unexported.
type lock = resourcelock.Interface

// Observed is a resourcelock.Interface for client-go's elector that makes terms. Only the elector
// calls the methods of the lock, one after another. The other methods are safe for concurrent use.
type Observed struct {
	lock // whose Get, Create and Update are observed

	o       Options        // of an elector with the same durations
	leases  *watchedLeases // nil if the lock is no LeaseLock
	now     clock
	current atomic.Pointer[tenure] // the last one, or nil

	// Only the elector's goroutine uses these.
	authors authors
	ours    bool   // this process holds the record as last read or written
	read    bool   // since the last write
	leader  string // as last reported
}

// String returns the description of the lock.
func (o *Observed) String() string { return o.Describe() }

// Name returns the name of the Check, such as "leader-election-operator".
func (o *Observed) Name() string { return "leader-election-" + o.o.Lease }

// Check is like [Elector.Check].
func (o *Observed) Check(*http.Request) error { return o.current.Load().check() }

// Lead calls lead in the current term: see type [Lead]. Call it from OnStartedLeading with its
// context, from one goroutine or several. When lead returns, Lead returns its result, nil after a
// stop, or an [ErrLost] after a lost term. RunOrDie may return before Lead, after a loss or without
// a release. A host that exits then should wait for Lead.
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
		return fmt.Errorf("the Lease %s: %w", o.Describe(), ErrLost)
	}
	return err
}

// Get implements resourcelock.Interface. The record that it reads may end the term.
func (o *Observed) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.lock.Get(term.Without(ctx))
	if err == nil || apierrors.IsNotFound(err) {
		o.saw(record)
	}
	return record, raw, err
}

// saw records the record, or nil.
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
	if o.leader != "" && o.leader != o.o.Identity {
		o.o.Hooks.Leader(o.o.Lease, o.leader)
	}
}

// isOurs reports whether the last answer is of our term: the same Lease, last renewed by this
// process.
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

// Update implements resourcelock.Interface. It fails if the update would renew a lost term, release
// the Lease of another process, or release a Lease under which work goes on. Like Create, it fails
// for a duration below ObserveOptions.LeaseDuration.
func (o *Observed) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch record.HolderIdentity {
	case o.o.Identity:
		return o.hold(ctx, record, o.lock.Update)
	case "":
		return o.release(ctx, record)
	}
	return o.lock.Update(term.Without(ctx), record)
}

// hold makes a request that acquires or renews the Lease.
func (o *Observed) hold(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if says := time.Duration(record.LeaseDurationSeconds) * time.Second; says < o.o.LeaseDuration.Truncate(time.Second) {
		return fmt.Errorf("the Lease %s: the elector's LeaseDuration (%s) is shorter than ObserveOptions.LeaseDuration (%s), "+
			"so a term would be trusted for too long; set both to the same duration", o.Describe(), says, o.o.LeaseDuration)
	}
	slow := o.read
	o.read = false
	sent := o.now.moment()
	t, err := o.mayHold()
	if err != nil {
		return fmt.Errorf("the Lease %s: %w", o.Describe(), err)
	}
	at := record.RenewTime.Truncate(time.Microsecond)
	o.authors.wrote(at)
	err = write(term.Without(ctx), record)
	if t != nil && (err == nil || ctx.Err() == nil) {
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
		return fmt.Errorf("the Lease %s was renewed too late: %w", o.Describe(), ErrLost)
	}
	return nil
}

// mayHold returns the term that a write of the Lease renews, or nil if the write begins one.
func (o *Observed) mayHold() (*tenure, error) {
	if t := o.current.Load(); t != nil {
		if renews, err := t.renews(); renews || err != nil {
			return t, err
		}
	}
	if o.leases == nil {
		return nil, nil //nolint:nilnil // the write begins one
	}
	return nil, o.leases.namesake()
}

// begin makes the term of an acquisition.
func (o *Observed) begin(record resourcelock.LeaderElectionRecord, sent moment) {
	token := term.Token{
		Lease: types.UID(o.Describe()), ResourceVersion: strconv.FormatInt(record.AcquireTime.UnixMicro(), 10), Holder: o.o.Identity,
	}
	var left *term.Handover
	if l := o.leases; l != nil {
		token.Lease, token.ResourceVersion = l.last.UID, l.last.ResourceVersion
		left, l.left = l.left, nil
	}
	if before := o.current.Load(); before != nil {
		before.end(errReturned)
	}
	t := &tenure{o: &o.o, name: o.Describe(), now: o.now, lost: func() { o.o.Hooks.Lost(o.o.Lease) }}
	o.current.Store(t.begin(token, sent, left))
	o.o.Hooks.Acquired(o.o.Lease)
}

// release releases the Lease if it is ours and no work runs under it.
func (o *Observed) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if !o.ours {
		return fmt.Errorf("this process does not hold the Lease %s, so it does not release it", o.Describe())
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
	if !apierrors.IsConflict(err) { // the elector retries a conflict
		o.o.Hooks.Released(o.o.Lease, err)
	}
	return err
}
