// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explainer knows why its controllers reconcile an object or not. *manager.Manager and
// *controller.Controller implement it. All methods are safe for concurrent use.
type Explainer interface {
	// Explain returns its answers about an object, none if no controller watches the kind. It
	// returns soon after the end of ctx.
	Explain(ctx context.Context, o Object) []Answer
	// Watches returns the kinds that its controllers watch, such as Website.v1.example.com.
	Watches() []string
}

// limit is how long For waits for the answers.
const limit = time.Second

// For explains why an object is reconciled or not. It always returns an answer, within about a
// second. See the package doc for what it calls.
func For(ctx context.Context, o Object, all ...Explainer) Answers {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := Answers{Object: o}
	var watched []string
	for _, e := range all {
		found.Answers = append(found.Answers, e.Explain(ctx, o)...)
		watched = append(watched, e.Watches()...)
	}
	if len(found.Answers) == 0 {
		found.Answers = []Answer{notWatched(o, watched)}
	}
	slices.SortStableFunc(found.Answers, func(a, b Answer) int { return rank(a.Reason) - rank(b.Reason) })
	return found
}

func notWatched(o Object, watched []string) Answer {
	slices.Sort(watched)
	watched = slices.Compact(watched)
	a := Answer{
		Reason: NotWatched, Cause: fmt.Sprintf("no controller of this process watches the kind %q", o.Kind),
		Remedy: "add a source for the kind to a controller with Watch, or correct the kind",
	}
	if len(watched) > 0 {
		a.Evidence = []string{"watched kinds: " + strings.Join(watched, ", ")}
	}
	return a
}

// Trouble reports whether something is wrong. It is false for Done; for Running, Queued and
// Scheduled; and for an object that a controller ignores: Dropped, Unmapped and OutsideScope.
// AwaitsOwnWrites is trouble, because that wait usually takes milliseconds.
func (r Reason) Trouble() bool { return rank(r) == 0 }

// rank puts what is wrong before what is in progress, and this before objects without a key: one
// controller has nothing to do with most objects of another one.
func rank(r Reason) int {
	switch r {
	case Running, Queued, Scheduled:
		return 1
	case Done:
		return 2
	case Dropped, Unmapped, OutsideScope:
		return 3
	default:
		return 0
	}
}
