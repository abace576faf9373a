// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/term"
)

// elected is the leadership under a Lease in a cluster.
type elected struct {
	term.Elector

	text    words
	members Group  // the Elector, if all replicas work; nil: one leads
	name    string // of the Lease, without the namespace
	report  *report
	used    <-chan struct{} // closed when something is added under the Lease
	host    *host

	tried   atomic.Bool            // it campaigns
	seen    atomic.Bool            // the Lease was read or written at least once
	trouble atomic.Pointer[error]  // why it cannot be used, or nil
	leader  atomic.Pointer[string] // the identity that was seen last, or nil

	alive, usable, joined *check // joined is nil without a group
}

// words are the texts about a Lease.
type words struct{ leads, campaigning, unsynced, leading, lost, stuck, released, other, not string }

func leaderWords() words {
	return words{
		leads: "leading", campaigning: "campaigning", unsynced: "campaigning although not every controller is synced", leading: "leading",
		lost:  "the lease is lost: not renewed in time, or held by another replica; the work under it is cancelled",
		stuck: "the lease could not be released; it will expire", released: "the lease is released", other: "another replica leads",
		not: "campaign for the Lease",
	}
}

func memberWords() words {
	return words{
		leads: "membership", campaigning: "joining the group", unsynced: "joining the group although not every controller is synced", leading: "member of the group",
		lost:  "the membership is lost: its lease was not renewed in time, or another replica holds it; the work in all slots is cancelled",
		stuck: "the lease of this member could not be released; it will expire", released: "left the group", other: "another process holds the lease of this member",
		not: "join the group of the Lease",
	}
}

func elect(c Coordinator, m *Manager, used <-chan struct{}) (*elected, error) {
	e := &elected{report: m.report, used: used, host: &host{manager: m}}
	e.host.hook = hook.Join(e.log(), m.o.Hook)
	e.host.reports = e.host.hook // also of an Elector that reports nothing
	var err error
	e.Elector, err = c.Elector(e.host)
	if err == nil && argument.IsNil(e.Elector) {
		err = fmt.Errorf("the Coordinator %T returned no Elector", c)
	}
	if err != nil {
		return nil, err
	}
	e.name = e.String()[strings.LastIndex(e.String(), "/")+1:]
	e.text = leaderWords()
	e.alive = newCheck(e.Name(), func(context.Context) error { return e.Check(nil) })
	e.usable = newCheck(e.Name(), func(context.Context) error { return e.usability() })
	if g, ok := e.Elector.(Group); ok {
		e.members, e.text = g, memberWords()
		e.joined = newCheck("shards-"+e.name, func(context.Context) error { return e.joins() })
	}
	return e, nil
}

func (e *elected) logger() *slog.Logger { return e.report.logger().With("lease", e.String()) }

func (e *elected) log() *hook.Hook {
	return hook.Join(
		hook.On(func(*hook.LeaseCampaign) {
			e.tried.Store(true)
			e.logger().Info(e.text.campaigning, "identity", e.Identity())
		}),
		hook.On(func(*hook.LeaseAcquired) {
			e.found(nil)
			e.leader.Store(new(e.Identity()))
			e.logger().Info(e.text.leading)
		}),
		hook.On(func(*hook.LeaseLost) {
			e.leaves()
			e.logger().Error(e.text.lost)
		}),
		hook.On(func(event *hook.LeaseReleased) {
			e.leaves()
			if event.Err != nil {
				e.logger().Warn(e.text.stuck, "err", event.Err)
				return
			}
			e.logger().Info(e.text.released)
		}),
		hook.On(func(event *hook.LeaseHolder) {
			e.found(nil)
			e.leader.Store(&event.Identity)
			e.logger().Info(e.text.other, "leader", event.Identity)
		}),
		hook.On(func(event *hook.LeaseTrouble) { e.found(event.Err) }),
	)
}

// leaves keeps another leader that was already seen.
func (e *elected) leaves() {
	if l := e.leader.Load(); l != nil && *l == e.Identity() {
		e.leader.CompareAndSwap(l, nil)
	}
}

func (e *elected) found(trouble error) {
	if trouble == nil {
		e.seen.Store(true)
		e.trouble.Store(nil)
		return
	}
	e.trouble.Store(&trouble)
}

// usability fails while the Lease was never usable: such a replica could not take over, and a
// rollout must not replace a leader by it. Later trouble is a remark, because all replicas may have
// it at once, and would lose the requests to their webhooks. But a request that has not returned in
// its time is a fault of this process.
func (e *elected) usability() error {
	trouble := e.trouble.Load()
	if e.members != nil {
		if _, err := e.members.Ready(); err == nil { // it has read Leases
			e.seen.Store(true)
		}
	}
	switch {
	case trouble != nil && errors.As(*trouble, new(*run.OverdueError)):
		return *trouble
	case trouble != nil && e.seen.Load():
		return Remark((*trouble).Error())
	case trouble != nil:
		return fmt.Errorf("it could not be used yet: %w", *trouble)
	case e.seen.Load() || !run.Closed(e.used):
		return nil
	case e.tried.Load():
		return fmt.Errorf("no request for the Lease %s has been answered yet", e)
	default:
		return fmt.Errorf("this replica does not %s %s before its controllers are synced", e.text.not, e)
	}
}

// joins fails until the process has joined the group. Later trouble is a remark, because all
// replicas may have it at once.
func (e *elected) joins() error {
	remark, err := e.members.Ready()
	switch {
	case err != nil && run.Closed(e.used):
		return err
	case err != nil: // it joins when something is added
		return Remark(err.Error())
	case remark != "":
		return Remark(remark)
	}
	return nil
}
