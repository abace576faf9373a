// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
)

// snapshot is the part of a controller.Snapshot that the tables need.
type snapshot struct {
	Name            string
	Workers         int
	Leading, Paused bool
	Progress        struct {
		Running    int
		Longest    time.Duration
		LongestKey string
	}
	Keys []struct {
		LastError *struct{ Err string }
	}
	TakingOver string
	Slots      *int
	Sources    []struct{ Source, Phase, Err, Failure string }
	Reads      []struct{ What, State string }
	Queue      struct {
		At   time.Time
		Len  struct{ Ready, Waiting, Parked, Paused int }
		Keys []struct {
			State string
			Since time.Time
		}
	}
}

// snapshots gets the state of all controllers of each replica, or of the named ones.
func (p *plugin) snapshots(ctx context.Context, names []string) ([]got[map[string]snapshot], error) {
	return findAndAsk[map[string]snapshot](ctx, p, func(ctx context.Context, r *replica) (json.RawMessage, error) {
		list := names
		if len(list) == 0 {
			text, err := r.get(ctx, "/debug/controllers/", nil)
			if err != nil {
				return nil, err
			}
			if err := json.Unmarshal(text, &list); err != nil {
				return nil, err
			}
		}
		states := map[string]json.RawMessage{}
		for _, name := range list {
			state, err := r.get(ctx, "/debug/controllers/"+url.PathEscape(name), nil)
			if err != nil {
				return nil, err
			}
			states[name] = state
		}
		return json.Marshal(states)
	})
}

// row is a controller of a replica.
type row struct {
	replica string
	s       snapshot
}

// rowsOf returns the controllers by name, those that work before the standbys.
func rowsOf(all []got[map[string]snapshot]) []row {
	var rows []row
	for _, r := range all {
		for name, s := range r.value {
			s.Name = cmp.Or(s.Name, name)
			rows = append(rows, row{r.replica, s})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.s.Name, b.s.Name), cmp.Compare(a.s.standby(), b.s.standby()), cmp.Compare(a.replica, b.replica))
	})
	return rows
}

func (s *snapshot) standby() int {
	if s.Leading {
		return 0
	}
	return 1
}

func (p *plugin) controllersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "controllers [NAME ...]",
		Short: "List the controllers of each replica with their state",
		Long: `List the controllers of each replica with their state.

SOURCES counts the sources and further caches that are synced. SLOTS is for shard groups. NOTE has
what the controller waits for. With -o json, you get each controller's whole state, with all keys.`,
		Example: `  kubectl setpoint controllers --lease website-operator`,
		RunE: func(c *cobra.Command, names []string) error {
			all, err := p.snapshots(c.Context(), names)
			if err != nil || p.output != "" {
				return err
			}
			var t table
			t.row("CONTROLLER", "REPLICA", "STATE", "WORKERS", "SLOTS", "KEYS", "FAILING", "SOURCES", "NOTE")
			for _, r := range rowsOf(all) {
				slots := ""
				if r.s.Slots != nil {
					slots = fmt.Sprint(*r.s.Slots)
				}
				synced, of, note := r.s.sources()
				t.row(r.s.Name, r.replica, r.s.state(), r.s.Workers, slots, len(r.s.Queue.Keys), r.s.failing(), fmt.Sprintf("%d/%d", synced, of), note)
			}
			p.out.print(&t)
			return nil
		},
	}
}

func (s *snapshot) state() string {
	switch {
	case s.Paused:
		return "paused"
	case s.Leading:
		return "leading"
	}
	return "standby"
}

// sources returns how many are synced, and the first reason to wait.
func (s *snapshot) sources() (synced, of int, note string) {
	if s.TakingOver != "" {
		note = "taking over: waits for " + s.TakingOver
	}
	for _, source := range s.Sources {
		reason := cmp.Or(source.Err, source.Failure)
		if source.Phase == "synced" {
			synced++
		} else {
			reason = source.Phase + ": " + reason
		}
		if reason != "" {
			note = cmp.Or(note, source.Source+": "+reason)
		}
	}
	for _, read := range s.Reads {
		if read.State == "synced" {
			synced++
		} else {
			note = cmp.Or(note, read.What+": "+read.State)
		}
	}
	return synced, len(s.Sources) + len(s.Reads), note
}

func (s *snapshot) failing() int {
	n := 0
	for _, k := range s.Keys {
		if k.LastError != nil {
			n++
		}
	}
	return n
}

func (p *plugin) topCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top [NAME ...]",
		Short: "Show how busy each controller is",
		Long: `Show how busy each controller is: its workers, and the keys in each state.

OLDEST READY is how long the oldest ready key has waited for a worker. LONGEST RUNNING is how long
the longest running Reconcile has run, and its key.`,
		Example: `  kubectl setpoint top --lease website-operator`,
		RunE: func(c *cobra.Command, names []string) error {
			all, err := p.snapshots(c.Context(), names)
			if err != nil || p.output != "" {
				return err
			}
			var t table
			t.row("CONTROLLER", "REPLICA", "BUSY", "READY", "WAITING", "FAILING", "OLDEST READY", "LONGEST RUNNING")
			for _, r := range rowsOf(all) {
				longest := ""
				if r.s.Progress.Running > 0 {
					longest = duration.HumanDuration(r.s.Progress.Longest) + " " + r.s.Progress.LongestKey
				}
				t.row(r.s.Name, r.replica, fmt.Sprintf("%d/%d", r.s.Progress.Running, r.s.Workers), r.s.Queue.Len.Ready,
					r.s.Queue.Len.Waiting, r.s.failing(), ago(r.s.oldest(), r.s.Queue.At), longest)
			}
			p.out.print(&t)
			return nil
		},
	}
}

// oldest returns since when the oldest ready key is ready, or the zero time.
func (s *snapshot) oldest() time.Time {
	var oldest time.Time
	for _, k := range s.Queue.Keys {
		if k.State == "ready" && !k.Since.IsZero() && (oldest.IsZero() || k.Since.Before(oldest)) {
			oldest = k.Since
		}
	}
	return oldest
}
