// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/term"
)

const (
	// troubleLimit is the age at which unserved slots become a Kubernetes event.
	troubleLimit = time.Minute
	// mostListed is how many reasons an event or a remark lists.
	mostListed = 3
)

// record makes an event of slots that have been unserved for troubleLimit, and another one when all
// are served again.
func (r *reporter) record(ctx context.Context, s *Status, since time.Time) {
	switch {
	case since.IsZero() && r.recorded:
		r.recorded = false
		r.event(ctx, s, events.Normal, "SlotsServed", "all slots are served again")
	case !since.IsZero() && !r.recorded && time.Since(since) > troubleLimit:
		r.recorded = true
		r.event(ctx, s, events.Warning, "SlotsUnserved", describeUnserved(s))
	}
}

// event is recorded by one member. It is about the group's Lease.
func (r *reporter) event(ctx context.Context, s *Status, t events.Type, reason, note string) {
	if !s.First || r.m.events == nil {
		return
	}
	namespace, name, _ := strings.Cut(s.Group, "/")
	r.m.events.Eventf(term.Without(ctx), &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: s.UID},
	}, t, reason, "", note)
}

func describeUnserved(s *Status) string {
	var all []string
	for _, u := range s.Unserved {
		all = append(all, fmt.Sprintf("%d slots (%s) are not served for %s: %s",
			len(u.Slots), u.Slots, time.Since(u.Since).Round(time.Second), u.Reason))
	}
	if more := len(all) - mostListed; more > 0 {
		all = append(all[:mostListed], fmt.Sprintf("%d more reasons", more))
	}
	return strings.Join(all, "; ")
}

// Ready returns an error until this process has joined the group, or waits for others that must end
// first. After that, remark is what a person should know, such as slots that are not served, or "".
func (g *Group) Ready() (remark string, err error) {
	s := g.Status()
	if s.Standby || s.isMember() {
		g.joined.Store(true)
	}
	if !g.joined.Load() {
		return "", notJoined(s)
	}
	if s.Member == "" {
		return cmp.Or(s.Trouble, "this replica is no member of the group"), nil
	}
	return cmp.Or(describeUnserved(s), s.Trouble), nil
}

func (s *Status) isMember() bool {
	name, _, _ := strings.Cut(s.Member, "@")
	return slices.ContainsFunc(s.Members, func(m MemberStatus) bool { return m.Name == name })
}

func notJoined(s *Status) error {
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
