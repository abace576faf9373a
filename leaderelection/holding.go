// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// campaigner is what an elector keeps from one Run to the next.
type campaigner struct {
	leases
	now     clock
	stamper stamper
	current atomic.Pointer[tenure] // the last one; nil: there was none
}

// candidate is an elector in one Run. Only Run's goroutine uses it.
type candidate struct {
	*campaigner

	log     *slog.Logger
	rival   rival
	authors authors

	from  string        // who was last seen to lead while this process did not; empty: nobody
	heard time.Duration // when that Lease was last seen to change, by the candidate's clock

	left       *term.Handover // by the last holder, nil: nothing is known
	leader     string         // as last reported
	trouble    string         // as last logged
	watchAgain time.Time      // after it was refused
	polls      bool           // as last logged: it could not be watched
}

// see notes the Lease as it is now, and reports whether it changed.
func (c *candidate) see(lease *coordinationv1.Lease) (changed bool) {
	now := c.now().mono
	changed = c.rival.see(lease, c.authors.mine(lease), now)
	if changed {
		c.inherit(lease)
	}
	if lease == nil || !changed {
		return changed
	}
	leader := holderOf(lease)
	impostor := leader == c.o.Identity && !c.authors.mine(lease)
	if !c.authors.mine(lease) {
		c.from, c.heard = cmp.Or(leader, c.from), now
	}
	if impostor {
		leader += " in another process"
	}
	known := leader == c.leader
	c.leader = leader
	switch {
	case known || leader == "":
	case impostor:
		c.log.Warn("the lease is held under the identity of this process, but not by it: its expiry is waited for", "identity", c.o.Identity)
	case leader != c.o.Identity:
		c.o.Hooks.Leader(c.o.Lease, leader)
	}
	return changed
}

// inherit notes what a Lease hands over from the term before. It stays until another process holds
// the Lease: our own acquisition, which removes it, may not be answered.
func (c *candidate) inherit(l *coordinationv1.Lease) {
	if c.authors.mine(l) {
		return
	}
	c.left = nil
	if l == nil {
		return
	}
	left, err := c.stamper.inheritance(l)
	if err != nil {
		c.log.Warn("what the last holder of the lease has written cannot be read, so its writes are not waited for", "annotation", WrittenAnnotation, "err", err)
	}
	c.left = left
}

// tookOver reports who had the Lease before, when it is ours.
func (c *candidate) tookOver() {
	if c.from != "" {
		c.o.Hooks.TookOver(hook.LeaseTakeover{Lease: c.o.Lease, From: c.from, Gap: c.now().mono - c.heard})
	}
	c.from = ""
}

// failed logs what goes wrong, once until it goes well or wrong in another way.
func (c *candidate) failed(doing string, err error) {
	if err == nil || c.trouble == err.Error() {
		return
	}
	c.trouble = err.Error()
	c.log.Warn(doing, "err", err)
	c.o.Hooks.Trouble(c.o.Lease, err)
}

// succeeded logs that trouble is over.
func (c *candidate) succeeded() {
	if c.trouble == "" {
		return
	}
	c.trouble = ""
	c.log.Info("the lease can be read and written again")
	c.o.Hooks.Trouble(c.o.Lease, nil)
}

var errTaken = errors.New("the lease is not ours any more")

// holding is a Lease that is ours.
type holding struct {
	lease   *coordinationv1.Lease // as last answered or read
	won     moment                // when the request was sent that made it ours
	slow    bool                  // the last write took more than one request
	*tenure                       // nil before the term begins
}

// term leads once and releases the Lease. It reports whether the term was lost; lead has then
// returned in time if err is nil.
func (c *candidate) term(ctx context.Context, h *holding, lead Lead) (lost bool, err error) {
	if ctx.Err() != nil { // stopped at the moment when the Lease was acquired
		c.release(ctx, h)
		return false, nil
	}
	c.o.Hooks.Acquired(c.o.Lease)
	keep, letGo := context.WithCancel(context.WithoutCancel(ctx))
	defer letGo()
	c.begin(h, letGo)
	defer h.end(ErrLost)
	done := make(chan error, 1)
	go func() {
		err := fmt.Errorf("the work %w", run.ErrExited) // unless lead returns
		defer func() {
			done <- err
			letGo()
		}()
		err = h.lead(ctx, lead)
	}()
	c.keep(keep, h)
	if h.expire() {
		c.o.Hooks.Lost(c.o.Lease)
		return true, c.join(h, done)
	}
	err = <-done
	_ = h.close(ctx) // before the Lease is released; nothing leads any more
	c.release(ctx, h)
	return false, err
}

// begin makes the term that the Lease stands for.
func (c *candidate) begin(h *holding, lost func()) {
	t := &tenure{o: &c.o, name: c.String(), now: c.now, lost: lost}
	token := term.Token{Lease: h.lease.UID, ResourceVersion: h.lease.ResourceVersion, Holder: c.o.Identity}
	h.tenure = t.begin(token, h.won, c.left)
	c.left = nil
	c.current.Store(t)
}

// join waits until lead has returned, or, unless it is to stay, until the patience is over.
func (c *candidate) join(h *holding, done <-chan error) error {
	late := time.NewTimer(h.patience())
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
	}
	select {
	case err := <-done: // while a request kept this goroutine
		return err
	default:
	}
	if !c.o.Stay {
		return fmt.Errorf("the Lease %s was lost, and the work under it has not stopped before it expired: somebody else may lead now, so this process must exit", c)
	}
	c.log.Error("the lease was lost and is over, and the work under it has not stopped: somebody else may lead now, and this process will not before it has")
	err := <-done
	c.log.Info("the work of the lost term has stopped")
	return err
}

// keep renews the Lease until ctx is done: what leads has returned, or the term is lost.
func (c *candidate) keep(ctx context.Context, h *holding) {
	next := time.NewTimer(time.Until(h.won.time.Add(c.o.RetryPeriod)))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if h.expire() {
			return
		}
		began := time.Now()
		sent, err := c.renew(ctx, h)
		late := err == nil && !h.renew(sent)
		if err == nil || ctx.Err() == nil { // else the answer does not matter any more
			c.o.Hooks.Renewed(hook.LeaseRenewal{Lease: c.o.Lease, Took: time.Since(began), Slowpath: h.slow, Err: err})
		}
		switch {
		case late:
			return
		case err == nil:
			c.succeeded()
		case errors.Is(err, errTaken):
			h.taken()
			return
		case ctx.Err() == nil:
			c.failed("the lease was not renewed", err)
		}
		next.Reset(c.untilNext(began, h, err))
	}
}

// untilNext is how long to wait before the next renewal. An API server that asks for more than a
// RetryPeriod gets half of what is left, so that the term is not lost without another try.
func (c *candidate) untilNext(began time.Time, h *holding, err error) time.Duration {
	pause := time.Until(began.Add(c.o.RetryPeriod))
	return max(pause, min(delayOf(err), h.left()/2))
}

// renew writes the Lease once more. It returns when the write was sent.
func (c *candidate) renew(ctx context.Context, h *holding) (sent moment, err error) {
	return c.overwrite(ctx, h, func(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
		return held(l, c.o.Identity, c.o.LeaseDuration, at)
	})
}

// maxConflicts is how often in a row a write is tried that finds the Lease changed, and still ours.
const maxConflicts = 5

// overwrite writes over the very record that is known to be ours. If the API server refuses that,
// the record has changed: it is read, and must be ours. overwrite returns when the write was sent,
// or errTaken.
func (c *candidate) overwrite(ctx context.Context, h *holding, change func(*coordinationv1.Lease, time.Time) *coordinationv1.Lease) (sent moment, err error) {
	h.slow = false
	for range maxConflicts {
		sent = c.now.moment()
		at := sent.time.Truncate(time.Microsecond)
		c.authors.wrote(at)
		var written *coordinationv1.Lease
		written, err = c.update(ctx, change(h.lease, at))
		switch {
		case err == nil:
			c.authors.answered(at)
			h.lease = written
			return sent, nil
		case apierrors.IsNotFound(err):
			return sent, errTaken
		case !apierrors.IsConflict(err):
			return sent, err
		}
		c.authors.refused(at)
		h.slow = true
		found, unread := c.read(ctx)
		if unread != nil {
			return sent, unread
		}
		if !c.ours(h, found) {
			c.see(found)
			return sent, errTaken
		}
		h.lease = found
	}
	return sent, err // the last conflict: nothing was written
}

// ours reports whether a record is of our term: the same Lease, last renewed by this process.
func (c *candidate) ours(h *holding, found *coordinationv1.Lease) bool {
	return found != nil && found.UID == h.lease.UID && c.authors.mine(found)
}

// releaseLimit is how long a release is tried: less than a manager leaves a process that stops.
const releaseLimit = 2 * time.Second

// release gives the Lease up, if it is still ours (L4), so that a rival need not wait for it to
// expire.
func (c *candidate) release(ctx context.Context, h *holding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	stamped := false
	_, err := c.overwrite(ctx, h, func(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
		l = c.givenUp(h, l, at)
		_, stamped = l.Annotations[WrittenAnnotation]
		return l
	})
	if stamped && notStored(err) { // what it says of the writes (L9) is not worth to have rivals wait until it expires
		_, err = c.overwrite(ctx, h, givenUp)
	}
	switch {
	case errors.Is(err, errTaken):
		if h.tenure != nil { // it began, and did not end as it should
			c.o.Hooks.Lost(c.o.Lease)
		}
		return
	case err != nil:
		err = fmt.Errorf("release the Lease %s: %w", c, err)
	}
	c.o.Hooks.Released(c.o.Lease, err)
}

// notStored reports whether the API server refused the content: too many annotations, say, or an
// admission plugin that does not know ours.
func notStored(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// givenUp is the Lease as this process writes it at a release.
func (c *candidate) givenUp(h *holding, l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	l = givenUp(l, at)
	switch {
	case h.tenure != nil:
		writes, unknown := h.term.Written()
		return c.stamper.stamped(l, writes, unknown, at)
	case c.left != nil: // nothing has led meanwhile
		return c.stamper.stamped(l, c.left.Writes, c.left.Unknown, at)
	}
	return l
}
