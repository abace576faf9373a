// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/term"
)

// Group is this process's membership of a group of replicas that divide keys among them. It is a
// [term.Elector] and a [term.Partition]. Run may be called once at a time. All other methods are
// safe for concurrent use.
type Group struct {
	process process

	elector *leaderelection.Elector // for the member's Lease
	grace   time.Duration           // as in leaderelection.Options
	program string                  // of ProgramLabel; may be empty
	joined  atomic.Bool             // a member, or a standby, at least once
}

// New makes a group of the replicas with the same Lease. It starts nothing and makes no request.
// The error names what is invalid.
//
// All members need the same Lease, Namespace, LeaseDuration and Options.Partitioner. The Lease can
// be one that an elector of package leaderelection or client-go used before: see the package
// documentation. With Election.Config, cfg may be nil.
func New(cfg *rest.Config, o Options) (*Group, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	election := o.Election
	member := election
	member.Lease = fmt.Sprintf("%s-%.*s", election.Lease, suffix, uuid.NewUUID())
	g := &Group{grace: cmp.Or(election.StuckAfter, defaultGrace), process: process{o: o.withDefaults(), name: member.Lease, owned: owned.New()}}
	if election.RetryPeriod == 0 && election.RenewDeadline == 0 {
		member.RetryPeriod = o.leaseDuration() / 6 // 24 a minute, and at most 30 with moves
	}
	member.Labels = map[string]string{GroupLabel: election.Lease}
	if g.program = election.Labels[ProgramLabel]; g.program != "" {
		member.Labels[ProgramLabel] = g.program
	}
	member.Annotator = annotator{&g.process}
	member.Hook = renamed(election.Hook, election.Lease)
	var err error
	if g.elector, err = leaderelection.New(cfg, member); err != nil {
		return nil, err
	}
	g.process.identity = g.elector.Identity()
	namespace, _, _ := strings.Cut(g.elector.String(), "/")
	if election.Config != nil {
		cfg = election.Config
	}
	if g.process.requests, err = newRequests(cfg, namespace, election.Lease); err != nil {
		return nil, err
	}
	g.process.registry = &registry{
		group: election.Lease, least: o.leaseDuration(), began: time.Now(), wake: make(chan struct{}, 1), leases: map[string]entry{},
	}
	g.process.status.Store(&Status{Group: g.String()})
	return g, nil
}

// Run joins the group, and calls lead while this process is a member. First it waits while members
// of another group of the same program work: see [ProgramLabel]. See also [term.Lead]. take ends
// when the member has given up its slots, which begins when ctx is done. After a loss of its Lease,
// the process joins again when lead has returned. Otherwise, Run is like
// [leaderelection.Elector.Run].
func (g *Group) Run(ctx context.Context, lead term.Lead) error {
	watching, stop := context.WithCancel(term.Without(context.WithoutCancel(ctx)))
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { watchLeases(watching, &g.process.requests, g.process.registry) })
	g.awaitRenamed(term.Without(ctx))
	var left bool
	err := g.elector.Run(ctx, func(take, work context.Context) error {
		l, err := newSession(&g.process, work)
		if err == nil {
			left, err = l.run(take, work, lead)
		}
		return err
	})
	if left {
		if err := g.process.requests.deleteReleased(watching, g.process.name); err != nil {
			logging.Of(watching).Warn("the Lease of this member was not deleted; another member will do it", "lease", g.process.name, "err", err)
		}
	}
	stop()
	running.Wait()
	return errors.Join(err, run.Join(requestLimit, g.process.requests.calls, g.process.requests.watches))
}

// Slot implements [term.Partition].
func (g *Group) Slot(name types.NamespacedName) (uint8, error) {
	return g.process.o.Partitioner.Slot(name)
}

// Owned implements [term.Partition].
func (g *Group) Owned() (all []term.OwnedSlot, changed <-chan struct{}) {
	return g.process.owned.Owned()
}

// Needs returns the rights of the group's requests: for the Leases of the members, whose names are
// random, and for events about the group's Lease.
func (g *Group) Needs() []rbac.Need {
	right := func(group, resource string, verbs ...string) rbac.Need {
		return rbac.Need{Rule: rbac.Rule{
			Namespace: g.process.requests.namespace, Group: group, Resource: resource, Verbs: verbs, Why: "the group " + g.String(),
		}}
	}
	return []rbac.Need{
		right(coordinationv1.GroupName, "leases", "create", "delete", "get", "list", "update", "watch"),
		right(eventsv1.GroupName, "events", "create", "patch"),
	}
}

// Identity returns the holderIdentity of this process in its Lease.
func (g *Group) Identity() string { return g.process.identity }

// Name returns the name of the Check, such as "leader-election-operator".
func (g *Group) Name() string { return "leader-election-" + g.process.requests.group }

// Check is like [leaderelection.Elector.Check]. It also covers the requests for the group's Lease.
func (g *Group) Check(r *http.Request) error {
	return cmp.Or(g.elector.Check(r), g.process.requests.calls.Stuck(g.grace))
}

// String returns NAMESPACE/NAME of the group's Lease.
func (g *Group) String() string { return g.process.requests.String() }

// Status returns the state of the group. Run updates it at least every second, and with every
// change. You may keep it: it never changes.
func (g *Group) Status() *Status { return g.process.status.Load() }

// MarshalJSON returns Status as JSON, for package debug.
func (g *Group) MarshalJSON() ([]byte, error) { return json.Marshal(g.Status()) }

// renamed lets h report the name of the group instead of this member's Lease, which is another one
// in each process. Only this member holds that Lease.
func renamed(h *hook.Hook, group string) *hook.Hook {
	return hook.New(func(e hook.Event) {
		switch e := e.(type) {
		case *hook.LeaseCampaign:
			e.Lease = group
		case *hook.LeaseAcquired:
			e.Lease = group
		case *hook.LeaseLost:
			e.Lease = group
		case *hook.LeaseReleased:
			e.Lease = group
		case *hook.LeaseRenewal:
			e.Lease = group
		case *hook.LeaseTrouble:
			e.Lease = group
		default:
			return
		}
		h.Send(e)
	})
}
