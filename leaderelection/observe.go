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

// ObserveOptions configures Observe. The durations must be those of the host's elector: of
// client-go's LeaderElectionConfig, or of component-base's LeaderElectionConfiguration. The zero
// value is their default. An elector with a shorter LeaseDuration is refused the Lease: a term would
// be trusted when another process may lead.
type ObserveOptions struct {
	// LeaseDuration is how long the Lease stays its holder's when it is not renewed. Default: 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long the host tries to renew before it gives up. The term is lost
	// RetryPeriod and RenewDeadline after the last renewal that succeeded was sent. The rest of
	// LeaseDuration is the time in which work has to stop. Default: 10 s.
	RenewDeadline time.Duration
	// RetryPeriod is the pause between two renewals. Default: 2 s.
	RetryPeriod time.Duration
	// Grace is how long the work of a lost term may go on before Check fails. Default: 20 s.
	Grace time.Duration
	// Hooks observes the terms. Campaigning, TookOver, Cold and Trouble are not called. Default: none.
	Hooks *hook.LeaderElection
}

// options are those of an elector with the same durations.
func (o ObserveOptions) options() Options {
	return Options{
		Lease: "host", Namespace: "host", Identity: "host", Grace: o.Grace, Hooks: o.Hooks,
		LeaseDuration: cmp.Or(o.LeaseDuration, 15*time.Second),
		RenewDeadline: cmp.Or(o.RenewDeadline, 10*time.Second),
		RetryPeriod:   cmp.Or(o.RetryPeriod, 2*time.Second),
	}.withDefaults()
}

// Validate names each field that is wrong, after defaults.
func (o ObserveOptions) Validate() error {
	err := o.options().validateTimes()
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "leaderelection.Options.", "leaderelection.ObserveOptions."))
}

// Observe wraps a host's lock, so that the client-go elector that uses it drives our terms and the
// fence (L2):
//
//	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, …)
//	observed, err := leaderelection.Observe(lock, leaderelection.ObserveOptions{LeaseDuration: …, …})
//	clientgo.RunOrDie(ctx, clientgo.LeaderElectionConfig{
//		Lock: observed, ReleaseOnCancel: true, …
//		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(ctx context.Context) {
//			err := observed.Lead(ctx, func(take, work context.Context) error { return c.Lead(take, work) })
//			…
//		}, …},
//	})
//
// The wrapper makes no request of its own. The trust counts from the start of the elector's last
// Create or Update that succeeded. How the Lease is won stays the elector's business; how a term
// ends is ours:
//
//   - The term is lost RetryPeriod and RenewDeadline after that start (client-go counts from the
//     answer), when another process is seen to hold the Lease, or it was deleted or made anew. What
//     leads is cancelled with cause ErrLost, and the elector is refused further renewals.
//   - A release (ReleaseOnCancel) waits until what leads has returned (L3), as long as the elector's
//     request lasts and the term is trusted; else it is refused, and the Lease expires.
//   - A Lease that is not ours is not released (L4).
//   - A release leaves the last writes on the Lease, for the next term (L9).
//
// For a *resourcelock.LeaseLock, the token ([term.Token]) has the UID of the Lease and its version
// when it was acquired. Observe uses a copy of the lock. Other locks do not show the Lease: their
// token has the lock's description and the time of acquisition in microseconds, and a holder with
// the same identity is taken for this process.
func Observe(lock resourcelock.Interface, o ObserveOptions) (*Observed, error) {
	if lock == nil {
		return nil, errors.New("leaderelection.Observe: the lock is nil; resourcelock.New makes one")
	}
	if lock.Identity() == "" {
		return nil, errors.New("leaderelection.Observe: the lock has no identity; set ResourceLockConfig.Identity to one that differs in each start of each process")
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

// lock is an alias, so that the embedded field is not exported.
type lock = resourcelock.Interface

// Observed is a host's lock that yields our terms: a resourcelock.Interface for client-go's
// elector. The methods of the lock are called by the elector, one after another; the others are
// safe for concurrent use.
type Observed struct {
	lock // whose Get, Create and Update are observed

	o       Options        // of an elector with the same durations
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
func (o *Observed) String() string { return o.Describe() }

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
		return fmt.Errorf("the Lease %s: %w", o.Describe(), ErrLost)
	}
	return err
}

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
	if o.leader != "" && o.leader != o.o.Identity {
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
			"give both the same durations", o.Describe(), says, o.o.LeaseDuration)
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

// release gives the Lease up if it is ours and nothing leads any more.
func (o *Observed) release(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if !o.ours {
		return fmt.Errorf("the Lease %s is not ours, so it is not released", o.Describe())
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
	if !apierrors.IsConflict(err) { // then the elector tries again
		o.o.Hooks.Released(o.o.Lease, err)
	}
	return err
}
