// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// Lease is one Lease of a process, with the controllers and functions that run while the process
// holds it. [Manager.Lease] makes one. Terms of several Leases begin and end independently. All
// methods are safe for concurrent use.
type Lease struct {
	*group

	elector elector // nil without leader election: leads at once
	free    bool    // other replicas lead at the same time, by intention
	hooks   *hook.LeaderElection
	name    string                // without the namespace
	leads   string                // in errors and profiles
	sharded bool                  // all replicas are members of a group
	tried   atomic.Bool           // it campaigns
	seen    atomic.Bool           // read or written at least once
	joined  atomic.Bool           // of a group: a member, or a standby of one, at least once
	trouble atomic.Pointer[error] // why the Lease cannot be used, or nil

	alive, usability *server.Check // nil without an elector
	slots            *server.Check // nil without a group
}

// elector decides when the process works under a Lease. *leaderelection.Elector makes one replica
// lead, and *shard.Group makes all replicas members of a group.
type elector interface {
	fmt.Stringer // NAMESPACE/NAME of the Lease
	Run(ctx context.Context, lead leaderelection.Lead) error
	Identity() string
	Name() string // of the check
	Check(*http.Request) error
}

type leases struct {
	launcher[*Lease]

	roster *roster
	dial   func(of *rest.Config) (*client.Client, error) // of nil: the manager's

	// guarded by mu
	identity string           // the default: that in the first Lease
	clients  []*client.Client // of Leases elsewhere
}

func newLeases(dial func(*rest.Config) (*client.Client, error), r *roster) *leases {
	return &leases{launcher: launcher[*Lease]{mu: &r.mu}, roster: r, dial: dial}
}

// add makes a Lease. The first one is the main Lease; without options it leads at once. With shards
// it is the Lease of a group.
func (ls *leases) add(o *leaderelection.Options, shards *shard.Options) (*Lease, error) {
	l := &Lease{group: newGroup(ls.roster), sharded: shards != nil}
	l.leads = l.text("leading", "membership")
	if o != nil {
		if err := ls.elect(l, *o, shards); err != nil {
			return l, fmt.Errorf("the Lease %q: %w", o.Lease, err)
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.all) > 0 {
		l.leads += " (" + l.place() + ")"
	}
	if slices.ContainsFunc(ls.all, func(other *Lease) bool { return other.elector != nil && other.name == l.name }) {
		return l, fmt.Errorf("the process already campaigns for a Lease %q; use unique names, even in different namespaces: logs, checks and metrics use them", l.name)
	}
	ls.addLocked(l)
	return l, nil
}

func (ls *leases) addFree() *Lease {
	l := &Lease{group: newGroup(ls.roster), leads: "leading on every replica", free: true}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.addLocked(l)
	return l
}

func (ls *leases) elect(l *Lease, o leaderelection.Options, shards *shard.Options) (err error) {
	if o.Identity == "" {
		o.Identity = ls.sameIdentity("")
	}
	hooks := ls.roster.o.Hooks.With(hook.Hooks{LeaderElection: o.Hooks}) // the same ones: once
	o.Hooks = hook.Hooks{LeaderElection: l.log()}.With(hooks).LeaderElection
	l.hooks, l.name = o.Hooks, o.Lease
	c, err := ls.dial(o.Config)
	if err != nil {
		return err
	}
	cfg := c.Config()
	if o.Config != nil {
		o.Config = cfg // errors name its API server
		ls.mu.Lock()
		ls.clients = append(ls.clients, c)
		ls.mu.Unlock()
	}
	if err = l.elects(cfg, o, shards); err != nil {
		return err
	}
	ls.sameIdentity(l.elector.Identity())
	l.alive = server.NewCheck(l.elector.Name(), func(context.Context) error { return l.elector.Check(nil) })
	l.usability = server.NewCheck(l.elector.Name(), func(context.Context) error { return l.usable() })
	return nil
}

// elects makes the elector. A nil pointer in the interface would not be nil.
func (l *Lease) elects(cfg *rest.Config, o leaderelection.Options, shards *shard.Options) error {
	if shards == nil {
		e, err := leaderelection.New(cfg, o)
		if err == nil {
			l.elector = e
		}
		return err
	}
	g, err := shard.New(cfg, o, l.observed(*shards))
	if err == nil {
		l.elector, l.shards = g, g
		l.slots = server.NewCheck("shards-"+l.name, func(context.Context) error { return l.divided() })
	}
	return err
}

func (ls *leases) sameIdentity(first string) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.identity == "" {
		ls.identity = first
	}
	return ls.identity
}

func (ls *leases) disconnect(ctx context.Context) {
	ls.mu.Lock()
	clients := slices.Clone(ls.clients)
	ls.mu.Unlock()
	for _, c := range clients {
		c.Disconnect(ctx)
	}
}

func (ls *leases) elected() []*Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ls.all), func(l *Lease) bool { return l.elector == nil })
}

// Add is [Manager.Add] for this Lease.
func (l *Lease) Add(c Controller) { l.roster.add(c, l.group) }

// AddLeaderOnly is [Manager.AddLeaderOnly] for this Lease.
func (l *Lease) AddLeaderOnly(name string, run func(ctx context.Context) error) {
	if l.sharded {
		l.roster.report.failed(fmt.Errorf("AddLeaderOnly: %q has no leader to run on, because with Options.Shards all replicas are active; "+
			"make a Lease of its own with Manager.Lease and add it there, or use AddEverywhere", name))
		return
	}
	l.addFunc("AddLeaderOnly", name, run)
}

// place returns NAMESPACE/NAME of the Lease, or "" for the main Lease without leader election.
func (l *Lease) place() string {
	if l.elector == nil {
		return ""
	}
	return l.elector.String()
}

// warmLimit is how long an unsynced controller delays a campaign: a source that never syncs must
// not keep all replicas from leading.
const warmLimit = 2 * time.Minute

func (l *Lease) campaign(ctx context.Context) error {
	if l.free {
		ctx = term.Without(ctx)
	}
	lead := func(take, work context.Context) error {
		// The grace time begins with the stop. A member's take ends later, without its slots.
		work, cancel := run.WithGrace(ctx, work, l.roster.o.Grace)
		defer cancel()
		return l.lead(take, work)
	}
	if l.elector == nil {
		return lead(ctx, context.WithoutCancel(ctx))
	}
	select { // a replica without work under the Lease leaves it to others
	case <-l.used:
		l.warm(ctx)
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil
	}
	return l.elector.Run(ctx, lead)
}

// warm waits until every controller can lead, at most for warmLimit unless it requires its sync.
func (l *Lease) warm(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, warmLimit)
	defer cancel()
	allSynced(limited, l.controllers())
	for required := l.cold((*removable).RequiresSync); len(required) > 0; required = l.cold((*removable).RequiresSync) {
		if !allSynced(ctx, required) {
			return
		}
	}
	var cold []string
	for _, c := range l.cold(func(*removable) bool { return true }) {
		cold = append(cold, c.Name())
	}
	if cold == nil || ctx.Err() != nil {
		return
	}
	l.logger().Warn(l.text("campaigning although not every controller is synced", "joining the group although not every controller is synced"),
		"after", warmLimit.String(), "controllers", cold)
	if l.hooks.Cold != nil {
		l.hooks.Cold(l.name)
	}
}

func (l *Lease) cold(is func(*removable) bool) []*removable {
	return slices.DeleteFunc(l.controllers(), func(c *removable) bool { return run.Closed(c.Synced()) || !is(c) })
}

func allSynced(ctx context.Context, controllers []*removable) bool {
	for _, c := range controllers {
		select {
		case <-c.Synced():
		case <-c.removed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (l *Lease) lead(take, work context.Context) error {
	r := l.roster.report
	term := newStage(take, r)
	defer term.end()
	l.open(func(f runnable) {
		var busy func() []string
		if f.of != nil {
			busy = f.of.Running
		}
		term.run(f.name, busy, func(take context.Context) error { return f.run(take, work) })
	})
	<-take.Done()
	l.close()
	term.running.Wait()
	l.flushEvents(term, work)
	return nil
}

// flushLimit is how long the events of a term may delay the release of its Lease. Those that wait
// are sent after it.
const flushLimit = 2 * time.Second

// flushEvents does nothing without an elector: there is no term, and record sends the events later.
// It does not wait for a request that ignores its context.
func (l *Lease) flushEvents(term *stage, work context.Context) {
	if l.elector == nil {
		return
	}
	limited, cancel := context.WithTimeout(work, flushLimit)
	term.run("sending the events of "+l.leads, nil, func(context.Context) error {
		defer cancel()
		if err := l.roster.recorder.Flush(limited); err != nil {
			l.logger().Warn("not all events of the term were sent before its end", "err", err)
		}
		return nil
	})
	<-limited.Done()
}

func (l *Lease) logger() *slog.Logger { return l.roster.report.logger().With("lease", l.place()) }

// text chooses the words for one leader, or for a member of a group.
func (l *Lease) text(leader, member string) string {
	if l.sharded {
		return member
	}
	return leader
}

func (l *Lease) log() *hook.LeaderElection {
	return &hook.LeaderElection{
		Campaigning: func(string) {
			l.tried.Store(true)
			l.logger().Info(l.text("campaigning", "joining the group"), "identity", l.elector.Identity())
		},
		Acquired: func(string) {
			l.found(nil)
			l.logger().Info(l.text("leading", "member of the group"))
		},
		Lost: func(string) {
			l.logger().Error(l.text(
				"the lease is lost: not renewed in time, or held by another replica; the work under it is cancelled",
				"the membership is lost: its lease was not renewed in time, or another replica holds it; the work in all slots is cancelled"))
		},
		Released: func(_ string, err error) {
			if err != nil {
				l.logger().Warn(l.text(
					"the lease could not be released; it will expire",
					"the lease of this member could not be released; it will expire"), "err", err)
				return
			}
			l.logger().Info(l.text("the lease is released", "left the group"))
		},
		Leader: func(_, identity string) {
			l.found(nil)
			l.logger().Info(l.text("another replica leads", "another process holds the lease of this member"), "leader", identity)
		},
		Trouble: func(_ string, err error) { l.found(err) },
	}
}

func (l *Lease) found(trouble error) {
	if trouble == nil {
		l.seen.Store(true)
		l.trouble.Store(nil)
		return
	}
	l.trouble.Store(&trouble)
}

// usable fails while the Lease was never usable: such a replica could not take over, and a rollout
// must not replace a leader by it. Later trouble is a remark, because all replicas may have it at
// once, and would lose the requests to their webhooks. But a request that has not returned in its
// time is a fault of this process.
func (l *Lease) usable() error {
	trouble := l.trouble.Load()
	if l.shards != nil && l.shards.Status().Standby { // it has read Leases
		l.seen.Store(true)
	}
	switch {
	case trouble != nil && errors.As(*trouble, new(*run.OverdueError)):
		return *trouble
	case trouble != nil && l.seen.Load():
		return server.Remark((*trouble).Error())
	case trouble != nil:
		return fmt.Errorf("it could not be used yet: %w", *trouble)
	case l.seen.Load() || !run.Closed(l.used):
		return nil
	case l.tried.Load():
		return fmt.Errorf("no request for the Lease %s has been answered yet", l.place())
	default:
		return fmt.Errorf("this replica does not %s before its controllers are synced", l.text("campaign for the Lease "+l.place(), "join the group of the Lease "+l.place()))
	}
}
