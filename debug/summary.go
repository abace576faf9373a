// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/why"
)

const (
	maxShown    = 200              // controllers on the page
	maxUnsynced = 5                // sources of a controller
	rateOver    = 10 * time.Second // what a rate is an average of
	rateGap     = 5 * time.Second  // between samples; a longer one begins a new average
)

// summary is what the page shows at once. Its size depends on the number of controllers, not of
// keys.
type summary struct {
	Name        string     `json:"name"`
	Identity    string     `json:"identity"`
	Controllers []shownOne `json:"controllers"`
	More        int        `json:"more,omitempty"` // controllers that are not shown
}

type shownOne struct {
	Name       string         `json:"name"`
	Kinds      []string       `json:"kinds,omitempty"`
	Leading    bool           `json:"leading"`
	Paused     bool           `json:"paused"`
	Workers    int            `json:"workers"`
	Running    int            `json:"running"`
	Ready      int            `json:"ready"`
	Waiting    int            `json:"waiting"`
	Held       int            `json:"held"`
	Parked     int            `json:"parked"`
	PausedKeys int            `json:"pausedKeys"`
	Reconciles uint64         `json:"reconciles"`
	Rate       *float64       `json:"rate,omitempty"` // Reconciles per second
	Failing    map[string]int `json:"failing,omitempty"`
	Unsynced   []string       `json:"unsynced,omitempty"`
	Stalled    time.Time      `json:"stalled,omitzero"` // since when
	Longest    time.Time      `json:"longest,omitzero"` // start of the longest running Reconcile
	LongestKey string         `json:"longestKey,omitempty"`
}

// summaries makes one summary a second for all pages.
type summaries struct {
	manager *manager.Manager

	mu      sync.Mutex // guards what follows
	at      time.Time
	body    []byte
	samples []sample // oldest first, for about rateOver
}

// sample has the numbers of Reconciles of the controllers at a moment.
type sample struct {
	at    time.Time
	count map[string]uint64
}

// get returns a summary as JSON. Do not change it.
func (s *summaries) get() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.body != nil && now.Sub(s.at) < updateEvery*9/10 {
		return s.body
	}
	all := s.manager.Controllers()
	slices.SortFunc(all, func(a, b manager.Controller) int { return cmp.Compare(a.Name(), b.Name()) })
	shown := summary{Name: s.manager.Name(), Identity: s.manager.Identity(), Controllers: []shownOne{}, More: max(0, len(all)-maxShown)}
	latest := sample{now, map[string]uint64{}}
	before := s.sinceLocked(now)
	for _, c := range all[:min(len(all), maxShown)] {
		one := show(c, now)
		latest.count[one.Name] = one.Reconciles
		if n, known := before.count[one.Name]; known && one.Reconciles >= n {
			one.Rate = new(float64(int(float64(one.Reconciles-n)/now.Sub(before.at).Seconds()*10+0.5)) / 10)
		}
		shown.Controllers = append(shown.Controllers, one)
	}
	s.samples = append(s.samples, latest)
	s.at = now
	s.body, _ = json.Marshal(shown) // it has only texts, numbers and times
	return s.body
}

// sinceLocked returns the sample that an average begins with, and forgets older ones.
func (s *summaries) sinceLocked(now time.Time) sample {
	if n := len(s.samples); n > 0 && now.Sub(s.samples[n-1].at) > rateGap {
		s.samples = nil
	}
	for len(s.samples) > 1 && now.Sub(s.samples[1].at) >= rateOver {
		s.samples = s.samples[1:]
	}
	if len(s.samples) == 0 {
		return sample{}
	}
	return s.samples[0]
}

func show(c manager.Controller, now time.Time) shownOne {
	r := c.Report()
	one := shownOne{
		Name: c.Name(), Leading: r.Leading, Paused: r.Queue.AllPaused, Workers: r.Workers, Running: r.Progress.Running,
		Ready: r.Queue.Ready, Waiting: r.Queue.Waiting, Held: r.Queue.Held, Parked: r.Queue.Parked, PausedKeys: r.Queue.Paused,
		Reconciles: r.Reconciles, Unsynced: r.Unsynced[:min(len(r.Unsynced), maxUnsynced)], LongestKey: r.Progress.LongestKey,
	}
	if w, ok := c.(why.Explainer); ok {
		one.Kinds = w.Watches()
	}
	one.Stalled, one.Longest = startOf(now, &r.Progress)
	for reason, n := range r.Failing {
		if n > 0 {
			if one.Failing == nil {
				one.Failing = map[string]int{}
			}
			one.Failing[reason] = n
		}
	}
	return one
}

// startOf turns durations into times, which do not change each second.
func startOf(now time.Time, p *controller.Progress) (stalled, longest time.Time) {
	if p.Stalled >= time.Second {
		stalled = now.Add(-p.Stalled).Round(time.Second)
	}
	if p.Longest >= time.Second {
		longest = now.Add(-p.Longest).Round(time.Second)
	}
	return stalled, longest
}
