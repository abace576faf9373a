// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/shard"
)

// Shards returns the group of Options.Shards, for its Status and for debug.Shards. It returns nil
// without the option, and if it is invalid.
func (m *Manager) Shards() *shard.Group { return m.main.shards }

const (
	// troubleLimit is the age at which unserved slots become a Kubernetes event.
	troubleLimit = time.Minute
	// mostReasons is how many reasons an event or a check lists.
	mostReasons = 3
)

// observed adds the manager's hooks to the options.
func (l *Lease) observed(o shard.Options) shard.Options {
	hooks := l.roster.o.Hooks.With(hook.Hooks{Shards: o.Hooks}) // the same ones: once
	told := false                                               // that slots are unserved
	o.Hooks = hook.Hooks{Shards: &hook.Shards{Observed: func(g hook.ShardGroup) {
		told = l.tell(g, told)
	}}}.With(hooks).Shards
	return o
}

// tell records an event when slots have been unserved for troubleLimit, and another one when all
// are served again. It reports whether the first one is out.
func (l *Lease) tell(g hook.ShardGroup, told bool) bool {
	since := g.UnservedSince
	switch {
	case since.IsZero() && told:
		l.event(g, events.Normal, "SlotsServed", "all slots are served again")
		return false
	case !since.IsZero() && !told && time.Since(since) > troubleLimit:
		l.event(g, events.Warning, "SlotsUnserved", unserved(l.shards.Status()))
		return true
	}
	return told
}

// event records an event about the group's Lease, on one member.
//
//nolint:contextcheck,nolintlint // a hook has no context; only the lint of the examples reports it
func (l *Lease) event(g hook.ShardGroup, eventType, reason, note string) {
	if !g.First {
		return
	}
	ctx := logr.NewContextWithSlogLogger(context.Background(), l.roster.report.logger())
	s := l.shards.Status()
	namespace, name, _ := strings.Cut(s.Group, "/")
	l.roster.recorder.Event(ctx, &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: s.UID},
	}, eventType, reason, "", note)
}

// unserved describes the unserved slots, or is empty.
func unserved(s *shard.Status) string {
	var all []string
	for _, u := range s.Unserved {
		all = append(all, fmt.Sprintf("%d slots (%s) are not served for %s: %s",
			len(u.Slots), u.Slots, time.Since(u.Since).Round(time.Second), u.Reason))
	}
	if more := len(all) - mostReasons; more > 0 {
		all = append(all[:mostReasons], fmt.Sprintf("%d more reasons", more))
	}
	return strings.Join(all, "; ")
}

// divided is the check of a group. It fails until this replica has joined: a rollout must not
// replace a member by a replica that cannot work. A new member does not wait for a former one to
// leave. A replica that must wait for other processes, such as the leader of an earlier version, is
// ready, because a rollout ends them only then. Later, others may serve the slots, and a rollout
// that waits would not help them.
func (l *Lease) divided() error {
	s := l.shards.Status()
	lacking := unserved(s)
	if s.Standby || isMember(s) {
		l.joined.Store(true)
	}
	switch {
	case !l.joined.Load() && run.Closed(l.used):
		return notJoined(s)
	case s.Member == "":
		return server.Remark(cmp.Or(s.Trouble, "this replica is no member of the group"))
	case lacking != "":
		return server.Remark(lacking)
	case s.Trouble != "":
		return server.Remark(s.Trouble)
	}
	return nil
}

// isMember reports whether the assignment names this replica.
func isMember(s *shard.Status) bool {
	name, _, _ := strings.Cut(s.Member, "@")
	return slices.ContainsFunc(s.Members, func(m shard.MemberStatus) bool { return m.Name == name })
}

func notJoined(s *shard.Status) error {
	switch {
	case s.Member == "":
		return errors.New("this replica has not joined the group yet: it has no Lease of its own")
	case !s.Read:
		return errors.New("the group's Lease could not be read yet; let the replica list and watch Leases in its namespace")
	case s.Trouble != "":
		return fmt.Errorf("this replica has not joined the group yet: %s", s.Trouble)
	default:
		return errors.New("this replica has not joined the group yet; let it get, list, watch, create and update Leases in its namespace")
	}
}
