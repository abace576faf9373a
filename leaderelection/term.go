// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
)

var (
	errReturned = errors.New("what led under it has returned")
	errTaken    = errors.New("the lease is not ours any more")
)

// holding is a Lease that is ours.
type holding struct {
	lease *coordinationv1.Lease // as last answered or read
	sent  time.Time             // when the request was sent that last made it ours
	slow  bool                  // the last write took more than one request
	trust hold                  // until when the term lasts

	term *client.Term
	lost *time.Timer // loses the term when it has lasted too long without a renewal, whatever a request under way is doing
	over *time.Timer // ends the term's trust, when work that was cancelled then has had its time
	duty *duty
}

// start makes the term that the Lease stands for. It is lost, then over, unless it is renewed.
func (h *holding) start(o *Options, lose func()) {
	token := client.Token{Lease: h.lease.UID, ResourceVersion: h.lease.ResourceVersion, Holder: o.Identity}
	h.term = client.NewTerm(token, h.sent, o.fence())
	h.lost = time.AfterFunc(time.Until(h.sent.Add(o.lasts())), lose)
	h.over = time.AfterFunc(time.Until(h.sent.Add(o.fence())), func() { h.term.End(ErrLost) })
}

// renewed makes it last from when the last renewal was sent. It says whether it had not been lost before.
func (h *holding) renewed(o *Options) bool {
	if !h.lost.Stop() {
		return false
	}
	h.lost.Reset(time.Until(h.sent.Add(o.lasts())))
	h.over.Reset(time.Until(h.sent.Add(o.fence())))
	h.term.Extend(h.sent)
	return true
}

// end ends the term. There is nothing under it any more, or somebody else may lead.
func (h *holding) end() {
	h.lost.Stop()
	h.over.Stop()
	h.term.End(ErrLost)
}

// term leads once and releases the Lease. It says whether the term was lost; lead has then returned in time if err is nil.
func (c *candidate) term(ctx context.Context, h *holding, lead Lead) (lost bool, err error) {
	if ctx.Err() != nil { // stopped at the moment when the Lease was acquired
		c.release(ctx, h)
		return false, nil
	}
	if c.o.Hooks.Acquired != nil {
		c.o.Hooks.Acquired(c.o.Lease)
	}
	work, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)
	h.duty = c.duties.begin(h.sent)
	h.start(&c.o, func() { lose(ErrLost) })
	if c.left != nil {
		h.term.Inherit(*c.left)
		c.left = nil
	}
	defer h.end()
	work = client.WithTerm(work, h.term)
	keep, letGo := context.WithCancel(work)
	defer letGo()
	done := make(chan error, 1)
	go func() {
		err := fmt.Errorf("the work %w", run.ErrExited) // unless lead returns
		defer func() {
			h.term.End(errReturned) // before the Lease is released
			c.duties.join(h.duty)
			done <- err
			letGo()
		}()
		err = c.lead(ctx, work, lead)
	}()
	c.keep(keep, h, lose)
	if work.Err() == nil {
		err := <-done
		c.release(ctx, h)
		return false, err
	}
	c.duties.lose(h.duty)
	if c.o.Hooks.Lost != nil {
		c.o.Hooks.Lost(c.o.Lease)
	}
	return true, c.join(h, done)
}

// lead calls lead with its contexts.
func (c *candidate) lead(ctx, work context.Context, lead Lead) error {
	take, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	err := lead(take, work)
	if take.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(take))) {
		return nil // it was asked to stop, and says so
	}
	return err
}

// join waits until lead has returned, or, unless it is to stay, until the Lease that was lost is over.
func (c *candidate) join(h *holding, done <-chan error) error {
	expired := time.NewTimer(time.Until(h.sent.Add(c.o.LeaseDuration)))
	defer expired.Stop()
	select {
	case err := <-done:
		return err
	case <-expired.C:
	}
	select {
	case err := <-done: // before this process came to look
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

// keep renews the Lease until ctx is done: what leads has returned, or the term is lost. It calls lose where it is the first to know.
func (c *candidate) keep(ctx context.Context, h *holding, lose context.CancelCauseFunc) {
	next := time.NewTimer(time.Until(h.sent.Add(c.o.RetryPeriod)))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if h.trust.lost(c.now()) {
			lose(ErrLost)
			return
		}
		began := time.Now()
		err := c.renew(ctx, h)
		c.tellRenewed(ctx, h, time.Since(began), err)
		switch {
		case err == nil && h.renewed(&c.o):
			c.succeeded()
		case err == nil: // too late
			lose(ErrLost)
			return
		case errors.Is(err, errTaken):
			h.term.End(ErrLost)
			lose(ErrLost)
			return
		case ctx.Err() == nil:
			c.failed("the lease was not renewed", err)
		}
		next.Reset(c.untilNext(began, h, err))
	}
}

// tellRenewed tells of a renewal, unless nobody waits for it any more.
func (c *candidate) tellRenewed(ctx context.Context, h *holding, took time.Duration, err error) {
	if err == nil {
		c.duties.renew(h.duty, h.sent)
	} else if ctx.Err() != nil {
		return
	}
	if c.o.Hooks.Renewed != nil {
		c.o.Hooks.Renewed(hook.LeaseRenewal{Lease: c.o.Lease, Took: took, Slowpath: h.slow, Err: err})
	}
}

// untilNext is how long to wait before the next renewal. An API server that asks for more than a RetryPeriod gets half of what is
// left, so that the term is not lost without another try.
func (c *candidate) untilNext(began time.Time, h *holding, err error) time.Duration {
	pause := time.Until(began.Add(c.o.RetryPeriod))
	left := time.Until(h.sent.Add(c.o.lasts()))
	return max(pause, min(delayOf(err), left/2))
}

// renew writes the Lease once more.
func (c *candidate) renew(ctx context.Context, h *holding) error {
	mono := c.now()
	sent, err := c.overwrite(ctx, h, func(l *coordinationv1.Lease, at time.Time) *coordinationv1.Lease {
		mono = c.now()
		return held(l, c.o.Identity, c.o.LeaseDuration, at)
	})
	if err == nil {
		h.sent = sent
		h.trust.renew(mono)
	}
	return err
}

// maxConflicts is how often in a row a write is tried that finds the Lease changed, and still ours.
const maxConflicts = 5

// overwrite writes over the very record that is known to be ours: others, and also this process, can have changed it only if the
// API server refuses the write. Then it is read, and must be ours. It returns when the write was sent, or errTaken.
func (c *candidate) overwrite(ctx context.Context, h *holding, change func(*coordinationv1.Lease, time.Time) *coordinationv1.Lease) (sent time.Time, err error) {
	h.slow = false
	for range maxConflicts {
		sent = time.Now()
		at := sent.Truncate(time.Microsecond)
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

// ours says whether a record is of our term: of the same Lease, with our identity, and last renewed by this process.
func (c *candidate) ours(h *holding, found *coordinationv1.Lease) bool {
	return found != nil && found.UID == h.lease.UID && c.authors.mine(found)
}
