// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
)

// informer is the part of a hook.InformerState that the table needs.
type informer struct {
	Kind, Scope, Phase, Storage, Err string
	Since                            time.Time
	Objects                          int
	Bytes, Lists, Watches            int64
	BrokenCount                      int
	Broken                           []string
}

func (p *plugin) informersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "informers",
		Short: "List the informers of each replica with their state",
		Long: `List the informers of each replica with their state.

SINCE is how long the phase has lasted. SIZE estimates the size of all objects. A second list means
that a watch could not be resumed. BROKEN counts the objects that do not fit their Go type.`,
		Example: `  kubectl setpoint informers --lease website-operator`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return p.informers(c.Context()) },
	}
}

func (p *plugin) informers(ctx context.Context) error {
	all, err := findAndAsk[[]informer](ctx, p, path("/debug/informers/", nil))
	if err != nil || p.output != "" {
		return err
	}
	var t table
	t.row("REPLICA", "KIND", "SCOPE", "PHASE", "SINCE", "OBJECTS", "SIZE", "LISTS", "WATCHES", "BROKEN", "ERROR")
	now := time.Now()
	for _, r := range all {
		for _, i := range r.value {
			text := i.Err
			if text == "" && len(i.Broken) > 0 {
				text = i.Broken[0]
			}
			t.row(r.replica, i.Kind, i.Scope, i.Phase, ago(i.Since, now), i.Objects, size(i.Bytes), i.Lists, i.Watches, i.BrokenCount, text)
		}
	}
	p.out.print(&t)
	return nil
}

// size returns a number of bytes in the form of Kubernetes, such as 212Mi.
func size(bytes int64) string {
	for unit := int64(1) << 30; unit > 1; unit >>= 10 {
		if bytes >= 10*unit {
			return resource.NewQuantity(bytes/unit*unit, resource.BinarySI).String()
		}
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}
