// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// campaigner is the state of an elector that outlives a Run.
type campaigner struct {
	leases
	now     clock
	stamper stamper
	current atomic.Pointer[tenure]
}

// candidate is an elector in one Run. Only Run's goroutine uses it.
type candidate struct {
	*campaigner

	log     *slog.Logger
	rival   lease.Rival
	authors authors

	reserved time.Time // the renew time of the last Lease that was created without a term

	from  string        // the last holder other than this process, or empty
	heard time.Duration // when its Lease was last seen to change

	left       *fence.Handover // from the last holder
	leader     string
	trouble    string
	watchAgain time.Time // not before, after a refused watch
	polls      bool      // logged that it polls
}

func (c *candidate) see(l *coordinationv1.Lease) (changed bool) {
	now := c.now().mono
	if t := c.current.Load(); t != nil && t.expired() {
		c.rival.Known = true
	}
	mine := c.authors.mine(l)
	reserved := mine && l.Spec.RenewTime.Time.Equal(c.reserved) // timed like another's
	changed = c.rival.See(l, mine && !reserved, now)
	if changed {
		c.inherit(l)
	}
	if l == nil || !changed {
		return changed
	}
	leader := lease.Holder(l)
	impostor := leader == c.o.Identity && !mine
	if !mine {
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
		c.log.Warn("another process holds the lease under the identity of this process, or an earlier state of the lease was restored; waiting until it expires", "identity", c.o.Identity)
	case leader != c.o.Identity:
		c.o.Hook.Send(&hook.LeaseHolder{Lease: c.o.Lease, Identity: leader})
	}
	return changed
}

// inherit keeps the handover until another process holds the Lease, because our acquisition may
// stay unanswered.
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
		c.log.Warn("the previous leader's writes cannot be read from the lease, so the caches are compared with the API server", "annotation", WrittenAnnotation, "err", err)
	}
	c.left = left
}

func (c *candidate) failed(doing string, err error) {
	if err == nil || c.trouble == err.Error() {
		return
	}
	c.trouble = err.Error()
	c.log.Warn(doing, "err", err)
	c.o.Hook.Send(&hook.LeaseTrouble{Lease: c.o.Lease, Err: err})
}

func (c *candidate) succeeded() {
	if c.trouble == "" {
		return
	}
	c.trouble = ""
	c.log.Info("the lease can be read and written again")
	c.o.Hook.Send(&hook.LeaseTrouble{Lease: c.o.Lease})
}

var errTaken = errors.New("this process does not hold the lease any more")

type holding struct {
	lease      *coordinationv1.Lease // as last answered or read
	won        moment                // when the acquisition was sent
	slow       bool                  // more than one request for the last write
	*tenure                          // nil before the term begins
	reportLoss func()                // sends LeaseLost once, and waits
}

// term returns a nil error for a lost term if lead has returned in time.
func (c *candidate) term(ctx context.Context, h *holding, lead term.Lead) (lost bool, err error) {
	if ctx.Err() != nil { // stopped during the acquisition
		c.release(ctx, h)
		return false, nil
	}
	c.o.Hook.Send(&hook.LeaseAcquired{Lease: c.o.Lease})
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
		h.reportLoss()
		return true, c.join(h, done)
	}
	err = <-done
	_ = h.close(ctx) // before the Lease is released; nothing leads any more
	c.release(ctx, h)
	return false, err
}

// begin makes the loss known at once: this goroutine may wait for a request or an observer.
func (c *candidate) begin(h *holding, letGo func()) {
	h.reportLoss = sync.OnceFunc(func() { c.o.Hook.Send(&hook.LeaseLost{Lease: c.o.Lease}) })
	t := &tenure{o: &c.o, name: c.String(), now: c.now, lost: func() {
		letGo()
		h.reportLoss()
	}}
	token := term.Token{Lease: h.lease.UID, ResourceVersion: h.lease.ResourceVersion, Holder: c.o.Identity}
	h.tenure = t.begin(token, h.won, c.left)
	c.left = nil
	c.current.Store(t)
}

func (c *candidate) join(h *holding, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-time.After(h.patience()):
	}
	select {
	case err := <-done: // while an observer kept this goroutine
		return err
	default:
	}
	if !c.o.Stay {
		return fmt.Errorf("the Lease %s was lost, and the work under it has not stopped before it expired: another process may lead now, so this process must exit", c)
	}
	c.log.Error("the lease was lost and has expired, but the work under it goes on: another process may lead now, and this one does not campaign until the work has stopped")
	err := <-done
	c.log.Info("the work of the lost term has stopped")
	return err
}

func (c *candidate) keep(ctx context.Context, h *holding) {
	first := h.won.time
	if c.o.Annotator == nil { // else they may depend on the term
		first = first.Add(c.o.RetryPeriod)
	}
	next := time.NewTimer(time.Until(first))
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
		if err == nil || ctx.Err() == nil { // else the answer does not matter
			c.o.Hook.Send(&hook.LeaseRenewal{Lease: c.o.Lease, Took: time.Since(began), Slowpath: h.slow, Err: err})
		}
		switch {
		case late:
			return
		case err == nil:
			c.succeeded()
		case errors.Is(err, errTaken):
			h.taken()
			return
		case ctx.Err() == nil || errors.As(err, new(*run.OverdueError)):
			c.failed("the lease was not renewed", err)
		}
		// The API server may delay it, by at most half of the time until the term is lost.
		next.Reset(max(time.Until(began.Add(c.o.RetryPeriod)), min(delayOf(err), h.left()/2)))
	}
}

func (c *candidate) renew(ctx context.Context, h *holding) (sent moment, err error) {
	return c.overwrite(ctx, h, func(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
		return c.o.described(lease.Held(l, c.o.Identity, c.o.LeaseDuration, at), h.term.Token())
	})
}

// maxConflicts is how often a write is tried while the Lease changes but stays ours.
const maxConflicts = 5

// overwrite updates the record that is known to be ours. After a conflict, it continues if the
// Lease is ours, else it returns errTaken. sent is when the write was sent.
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

func (c *candidate) ours(h *holding, found *coordinationv1.Lease) bool {
	return found != nil && found.UID == h.lease.UID && c.authors.mine(found)
}

// releaseLimit is less than a manager waits on a stop.
const releaseLimit = 2 * time.Second

func (c *candidate) release(ctx context.Context, h *holding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	stamped := false
	_, err := c.overwrite(ctx, h, func(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
		l = c.givenUp(h, l, at)
		_, stamped = l.Annotations[WrittenAnnotation]
		return l
	})
	if stamped && notStored(err) { // a release without the last writes is better than none
		_, err = c.overwrite(ctx, h, lease.GivenUp)
	}
	switch {
	case errors.Is(err, errTaken):
		if h.tenure != nil { // the term began and was lost
			h.reportLoss()
		}
		return
	case err != nil:
		err = fmt.Errorf("release the Lease %s: %w", c, err)
	}
	c.o.Hook.Send(&hook.LeaseReleased{Lease: c.o.Lease, Err: err})
}

// notStored reports whether the API server refused the content, such as the size of the
// annotations.
func notStored(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}

func (c *candidate) givenUp(h *holding, l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
	l = lease.GivenUp(l, at)
	switch {
	case h.tenure != nil:
		return c.stamper.stamped(l, (*fence.Term)(h.term).Written(), at)
	case c.left != nil: // there was no term
		return c.stamper.stamped(l, c.left, at)
	}
	return l
}
