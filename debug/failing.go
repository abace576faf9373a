// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/why"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Failing returns a handler that lists the keys whose last Reconcile failed. GET / returns
//
//	{
//	  "keys": [
//	    {
//	      "controller": "website",
//	      "key": "default/shop",
//	      "reason": "Forbidden",
//	      "error": "configmaps is forbidden: …",
//	      "at": "2026-11-29T08:00:12Z",
//	      "attempts": 4,
//	      "next": "2026-11-29T08:00:16Z",
//	      "terminal": false,
//	      "reconcileID": "626fd334-7"
//	    }
//	  ],
//	  "total": 1
//	}
//
// The failure that is longest ago comes first. See controller.FailedKey for the fields; without
// next, the key waits for an event. These parameters select keys, and total counts all of the
// selected ones:
//
//	controller=NAME  of one controller
//	reason=REASON    with one reason, such as Forbidden, in any case
//	limit=N          at most N keys, up to 1000; default: 100
//
// On a standby the list is empty. Handler has it under /debug/failing; Failing is for programs
// without a manager.
func Failing(controllers ...manager.Controller) http.Handler {
	return failing(func() []manager.Controller { return controllers })
}

type failingKeys struct {
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
	Next        time.Time  `json:"next,omitzero"`
	Terminal    bool       `json:"terminal"`
	ReconcileID string     `json:"reconcileID"`
}

func failing(all func() []manager.Controller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, ok := query(w, r, "controller", "reason", "limit")
		if !ok {
			return
		}
		limit := defaultLimit
		if text := q.Get("limit"); text != "" {
			var err error
			if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxLimit {
				http.Error(w, fmt.Sprintf("limit=%s is invalid; use a number from 1 to %d", text, maxLimit), http.StatusBadRequest)
				return
			}
		}
		selected := all()
		if name := q.Get("controller"); name != "" {
			c := named(w, selected, name)
			if c == nil {
				return
			}
			selected = []manager.Controller{c}
		}
		list := failingOf(selected, q.Get("reason"))
		write(w, failingKeys{Keys: list[:min(limit, len(list))], Total: len(list)})
	})
}

func failingOf(controllers []manager.Controller, reason string) []failingKey {
	list := []failingKey{}
	for _, c := range controllers {
		name := c.Name()
		for _, k := range c.Failing() {
			if reason == "" || strings.EqualFold(reason, string(k.Reason)) {
				list = append(list, failingKeyOf(name, &k))
			}
		}
	}
	slices.SortFunc(list, func(a, b failingKey) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Key, b.Key))
	})
	return list
}

func failingKeyOf(of string, k *controller.FailedKey) failingKey {
	return failingKey{
		Controller: of, Key: k.Key, Reason: k.Reason, Error: k.Err, At: k.At, Attempts: k.Attempts,
		Next: k.Next, Terminal: k.Terminal, ReconcileID: k.ReconcileID,
	}
}
