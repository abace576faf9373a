// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/setpoint-dev/setpoint/why"
)

// failing is the answer of /debug/failing. The plugin has a form of its own, because it may be
// older or newer than the operator.
type failing struct {
	Keys  []failingKey `json:"keys"`
	Total int          `json:"total"`
}

type failingKey struct {
	Controller  string     `json:"controller"`
	Key         string     `json:"key"`
	Reason      why.Reason `json:"reason"`
	Error       string     `json:"error"`
	At          time.Time  `json:"at"`
	Attempts    int        `json:"attempts"`
	Next        time.Time  `json:"next"`
	Terminal    bool       `json:"terminal"`
	ReconcileID string     `json:"reconcileID"`
}

func (p *plugin) failingCommand() *cobra.Command {
	var controller, reason string
	limit := 50
	c := &cobra.Command{
		Use:   "failing",
		Short: "List the keys whose last Reconcile failed",
		Long: `List the keys whose last Reconcile failed, with the reason code and the error.

FAILED is when the last attempt ended, NEXT when the next one begins.

Exit code 2 if a key is failing.`,
		Example: `  kubectl setpoint failing --lease website-operator
  kubectl setpoint failing --in deploy/website-operator --controller website --reason Forbidden`,
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&limit, "limit", limit, "How many keys each replica returns at most")
	c.Flags().StringVar(&controller, "controller", "", "Only keys of this controller")
	c.Flags().StringVar(&reason, "reason", "", "Only keys with this reason, such as Forbidden")
	c.RunE = func(c *cobra.Command, _ []string) error {
		query := url.Values{"limit": {strconv.Itoa(limit)}}
		for name, value := range map[string]string{"controller": controller, "reason": reason} {
			if value != "" {
				query.Set(name, value)
			}
		}
		return p.failing(c.Context(), query)
	}
	return c
}

func (p *plugin) failing(ctx context.Context, query url.Values) error {
	all, err := findAndAsk[failing](ctx, p, path("/debug/failing", query))
	if err != nil {
		return err
	}
	shown, total := 0, 0
	var t table
	t.row("REPLICA", "CONTROLLER", "KEY", "REASON", "ATTEMPTS", "FAILED", "NEXT", "ERROR")
	now := time.Now()
	for _, r := range all {
		shown, total = shown+len(r.value.Keys), total+r.value.Total
		for _, k := range r.value.Keys {
			t.row(r.replica, k.Controller, k.Key, k.Reason, k.Attempts, ago(k.At, now), k.next(now), k.Error)
		}
	}
	p.trouble = total > 0
	switch {
	case p.output != "":
	case total == 0:
		p.out.line("no key is failing (replicas asked: %d)", len(all))
	default:
		p.out.print(&t)
	}
	if shown < total {
		p.diag.line("%d of %d failing keys are listed; see --limit", shown, total)
	}
	return nil
}

func (k *failingKey) next(now time.Time) string {
	switch {
	case k.Terminal || k.Reason == why.GaveUp:
		return "never"
	case k.Next.IsZero():
		return ""
	case !k.Next.After(now):
		return "now"
	}
	return "in " + duration.HumanDuration(k.Next.Sub(now))
}
