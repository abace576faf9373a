// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/why"
)

// maxRows is how many keys an answer has. maxText limits the error of each, in bytes.
const (
	maxRows = 1000
	maxText = 300
)

type foundKeys struct {
	Keys []foundKey `json:"keys"`
	// Total counts the selected keys, All the keys of the selected controllers.
	Total int `json:"total"`
	All   int `json:"all"`
}

type foundKey struct {
	Controller string     `json:"controller"`
	Key        string     `json:"key"`
	State      string     `json:"state"`
	Since      time.Time  `json:"since,omitzero"`
	Due        time.Time  `json:"due,omitzero"`
	Attempts   int        `json:"attempts"`
	Took       float64    `json:"took,omitempty"` // seconds
	Reason     why.Reason `json:"reason,omitempty"`
	Error      string     `json:"error,omitempty"`
	At         time.Time  `json:"at,omitzero"`
}

// keys serves the keys in the queues and the failing ones. One request at a time walks over them.
func keys(all func() []manager.Controller) http.Handler {
	turn := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, ok := query(w, r, "controller", "state", "reason", "q", "sort")
		if !ok {
			return
		}
		order := map[string]func(a, b *foundKey) int{"": byAge, "age": byAge, "attempts": byAttempts, "duration": byDuration, "reason": byReason, "key": byKey}[q.Get("sort")]
		if order == nil {
			http.Error(w, fmt.Sprintf("sort=%s is invalid; use age, attempts, duration, reason or key", q.Get("sort")), http.StatusBadRequest)
			return
		}
		selected := all()
		if name := q.Get("controller"); name != "" {
			c := named(w, selected, name)
			if c == nil {
				return
			}
			selected = []manager.Controller{c}
		}
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-r.Context().Done():
			return
		}
		write(w, find(selected, q, order, func() bool { return r.Context().Err() != nil }))
	})
}

// find keeps the first maxRows keys in an order, and at most as many that come later.
func find(all []manager.Controller, q url.Values, order func(a, b *foundKey) int, gone func() bool) foundKeys {
	found := foundKeys{Keys: []foundKey{}}
	cut := func() {
		slices.SortFunc(found.Keys, func(a, b foundKey) int {
			return cmp.Or(order(&a, &b), cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Key, b.Key))
		})
		found.Keys = found.Keys[:min(len(found.Keys), maxRows)]
	}
	text := strings.ToLower(q.Get("q"))
	for _, c := range all {
		name := c.Name()
		for k := range c.Keys() {
			if found.All++; found.All%maxRows == 0 && gone() {
				return found
			}
			if !selects(&k, q, text) {
				continue
			}
			found.Total++
			if found.Keys = append(found.Keys, foundKeyOf(name, &k)); len(found.Keys) == 2*maxRows {
				cut()
			}
		}
	}
	cut()
	return found
}

// selects reports whether a key has the state and the reason, and the text, which is in lower case.
// The reason "any" selects all failing keys.
func selects(k *controller.KeySummary, q url.Values, text string) bool {
	reason := q.Get("reason")
	if k.Failure == nil && reason != "" || k.Failure != nil && reason != "" && reason != "any" && !strings.EqualFold(reason, string(k.Failure.Reason)) {
		return false
	}
	if state := q.Get("state"); state != "" && state != k.State {
		return false
	}
	return text == "" || strings.Contains(strings.ToLower(k.Key), text)
}

func foundKeyOf(of string, k *controller.KeySummary) foundKey {
	f := foundKey{Controller: of, Key: k.Key, State: k.State, Since: k.Since, Due: k.Due, Attempts: k.Attempts, Took: k.Took.Seconds()}
	if k.Failure != nil {
		f.Reason, f.Error, f.At = k.Failure.Reason, k.Failure.Err, k.Failure.At
		if len(f.Error) > maxText {
			f.Error = strings.ToValidUTF8(f.Error[:maxText], "") + "…"
		}
	}
	return f
}

// age is when a key's failure or state began. Keys without a time come last.
func (k *foundKey) age() time.Time {
	at := k.At
	if at.IsZero() {
		at = k.Since
	}
	if at.IsZero() {
		return time.Unix(1<<40, 0)
	}
	return at
}

func byAge(a, b *foundKey) int      { return a.age().Compare(b.age()) }
func byAttempts(a, b *foundKey) int { return cmp.Compare(b.Attempts, a.Attempts) }
func byDuration(a, b *foundKey) int { return cmp.Compare(b.Took, a.Took) }
func byKey(a, b *foundKey) int      { return cmp.Compare(a.Key, b.Key) }

// byReason puts the keys that do not fail last.
func byReason(a, b *foundKey) int {
	return cmp.Or(cmp.Compare(min(len(b.Reason), 1), min(len(a.Reason), 1)), cmp.Compare(a.Reason, b.Reason), byAge(a, b))
}
