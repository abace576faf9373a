// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// group is the part of a shard.Status that the tables need.
type group struct {
	Group, Member string
	Standby       bool
	Epoch         uint64
	Members       []struct {
		Name, Identity string
		Weight, Slots  int
		Leaving        bool
		Silent         time.Time
	}
	Owned    string
	Moving   int
	Unserved []struct {
		Slots  string
		Since  time.Time
		Reason string
	}
	Trouble string
}

func (p *plugin) shardsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "shards",
		Short: "Show the shard groups as each replica sees them",
		Long: `Show the shard groups as each replica sees them.

OWNED are the slots of the replica. The list of members, and of slots that no member serves, is from
the replica with the newest assignment. A slot that moves is unserved for a moment.`,
		Example: `  kubectl setpoint shards --lease website-operator`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return p.shards(c.Context()) },
	}
}

func (p *plugin) shards(ctx context.Context) error {
	all, err := findAndAsk[[]group](ctx, p, path("/debug/shards/", nil))
	if err != nil || p.output != "" {
		return err
	}
	var t table
	t.row("GROUP", "REPLICA", "MEMBER", "EPOCH", "OWNED", "MOVING", "TROUBLE")
	newest := map[string]group{}
	var names []string
	for _, r := range all {
		for _, g := range r.value {
			member := g.Member
			if g.Standby {
				member = "standby"
			}
			t.row(g.Group, r.replica, member, g.Epoch, g.Owned, g.Moving, g.Trouble)
			before, known := newest[g.Group]
			if !known {
				names = append(names, g.Group)
			}
			if !known || before.Epoch < g.Epoch {
				newest[g.Group] = g
			}
		}
	}
	if len(names) == 0 {
		p.out.line("no replica is in a shard group (replicas asked: %d)", len(all))
		return nil
	}
	p.out.print(&t)
	for _, name := range names {
		p.printGroup(newest[name])
	}
	return nil
}

func (p *plugin) printGroup(g group) {
	p.out.line("")
	var t table
	t.row("MEMBER OF "+g.Group, "IDENTITY", "WEIGHT", "SLOTS", "STATE")
	now := time.Now()
	for _, m := range g.Members {
		var state []string
		if m.Leaving {
			state = append(state, "leaving")
		}
		if !m.Silent.IsZero() {
			state = append(state, "silent for "+ago(m.Silent, now))
		}
		t.row(m.Name, m.Identity, m.Weight, m.Slots, strings.Join(state, ", "))
	}
	p.out.print(&t)
	for _, u := range g.Unserved {
		p.out.line("unserved for %s: slots %s, because %s", ago(u.Since, now), u.Slots, u.Reason)
	}
}
