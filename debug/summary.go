// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"encoding/json"
	"math"
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
	Actions     bool       `json:"actions"` // see Options.Actions
	Leases      []lease    `json:"leases,omitempty"`
	Controllers []shownOne `json:"controllers"`
	More        int        `json:"more,omitempty"` // controllers that are not shown
}

type lease struct {
	Name    string `json:"name"`
	Leader  string `json:"leader,omitempty"`
	Mine    bool   `json:"mine"` // this process leads
	Trouble string `json:"trouble,omitempty"`
}

type shownOne struct {
	Name       string   `json:"name"`
	Kinds      []string `json:"kinds,omitempty"`
	Leading    bool     `json:"leading"`
	Paused     bool     `json:"paused"`
	Workers    int      `json:"workers"`
	Running    int      `json:"running"`
	Ready      int      `json:"ready"`
	Waiting    int      `json:"waiting"`
	Held       int      `json:"held"`
	Parked     int      `json:"parked"`
	PausedKeys int      `json:"pausedKeys"`
	Reconciles uint64   `json:"reconciles"`
	Requests   uint64   `json:"requests"` // to API servers
	// Classes has the numbers of ready keys by class, without 0, if the queue has several classes.
	Classes map[string]int `json:"classes,omitempty"`
	// Rate and Asks are Reconciles and requests per second, P50 and P99 durations in milliseconds.
	Rate       *float64       `json:"rate,omitempty"`
	Asks       *float64       `json:"asks,omitempty"`
	P50        *float64       `json:"p50,omitempty"`
	P99        *float64       `json:"p99,omitempty"`
	Failing    map[string]int `json:"failing,omitempty"`
	Unsynced   []string       `json:"unsynced,omitempty"`
	Stalled    time.Time      `json:"stalled,omitzero"` // since when
	Longest    time.Time      `json:"longest,omitzero"` // start of the longest running Reconcile
	LongestKey string         `json:"longestKey,omitempty"`
}

// summaries makes one summary a second for all pages.
type summaries struct {
	manager *manager.Manager
	actions bool

	mu      sync.Mutex // guards what follows
	at      time.Time
	body    []byte
	samples []sample // oldest first, for about rateOver
}

// sample has the Reconciles and requests of the controllers at a moment.
type sample struct {
	at   time.Time
	took map[string]controller.Durations
	asks map[string]uint64
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
	shown := summary{Name: s.manager.Name(), Identity: s.manager.Identity(), Actions: s.actions, Controllers: []shownOne{}, More: max(0, len(all)-maxShown)}
	for _, l := range s.manager.Leases() {
		shown.Leases = append(shown.Leases, lease{l.Lease, l.Leader, l.Leader == l.Identity, l.Trouble})
	}
	latest := sample{now, map[string]controller.Durations{}, map[string]uint64{}}
	before := s.sinceLocked(now)
	for _, c := range all[:min(len(all), maxShown)] {
		r := c.Report()
		one := show(c, &r, now)
		latest.took[one.Name], latest.asks[one.Name] = r.Took, r.Requests
		one.measure(&before, now, &r)
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

// measure sets the averages and quantiles since a sample.
func (one *shownOne) measure(before *sample, now time.Time, r *controller.Report) {
	took, known := before.took[one.Name]
	if asks := before.asks[one.Name]; known && r.Took.Count() >= took.Count() && r.Requests >= asks {
		seconds := now.Sub(before.at).Seconds()
		lately := r.Took.Since(took)
		one.Rate, one.Asks = rounded(float64(lately.Count())/seconds, 10), rounded(float64(r.Requests-asks)/seconds, 10)
		if lately.Count() > 0 {
			one.P50, one.P99 = rounded(1000*lately.Quantile(0.5).Seconds(), 1000), rounded(1000*lately.Quantile(0.99).Seconds(), 1000)
		}
	}
}

func rounded(v, parts float64) *float64 { return new(math.Round(v*parts) / parts) }

func show(c manager.Controller, r *controller.Report, now time.Time) shownOne {
	one := shownOne{
		Name: c.Name(), Leading: r.Leading, Paused: r.Queue.AllPaused, Workers: r.Workers, Running: r.Progress.Running,
		Ready: r.Queue.Ready, Waiting: r.Queue.Waiting, Held: r.Queue.Held, Parked: r.Queue.Parked, PausedKeys: r.Queue.Paused,
		Reconciles: r.Took.Count(), Requests: r.Requests, Unsynced: r.Unsynced[:min(len(r.Unsynced), maxUnsynced)], LongestKey: r.Progress.LongestKey,
	}
	if w, ok := c.(why.Explainer); ok {
		one.Kinds = w.Watches()
	}
	for class, n := range r.ReadyByClass {
		if n > 0 && len(r.ReadyByClass) > 1 {
			if one.Classes == nil {
				one.Classes = map[string]int{}
			}
			one.Classes[class.String()] = n
		}
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
