// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"math/rand/v2"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// trouble is one kind of fault.
type trouble interface {
	name() string
	// strike makes trouble, and returns when it is over. It returns how often it had an effect.
	strike(w *world, r *rand.Rand) (effects int)
	// line is part of a log line that a replica has if there was an effect. It is empty if a
	// replica has nothing to report, because it carries on.
	line() string
}

// troubles has one of each kind.
func troubles() []trouble {
	return []trouble{
		restored{}, halfOpen{}, hungPlugin{}, noBookmarks{}, endlessList{}, undecodable{}, conflicts{}, lostAnswers{},
		forbidden{}, correction{}, restart{}, lateForm{},
	}
}

// between returns a random duration.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// rule applies a rule to one replica's requests for a while, and returns its hits. If cuts is set,
// it breaks the running requests, so that the rule sees new ones.
func (w *world) rule(r *rand.Rand, rule fault.Rule, d time.Duration, cuts bool) (hits int) {
	rule.Match.Config = w.some(r).cfg
	f := w.plane.add(rule)
	if cuts {
		w.plane.cut(fault.Match{Config: rule.Match.Config, Verbs: []string{"watch"}})
	}
	w.plane.pause(d)
	hits = f.Hits()
	f.Remove()
	return hits
}
