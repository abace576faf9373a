// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/why"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// explainRunning reports false if no Reconcile of the key is in progress.
func (c *Controller[K]) explainRunning(key K) (a why.Answer, ok bool) {
	for _, w := range c.pool.state().workers {
		r := w.run.Load()
		if r == nil || r.item.Key() != key {
			continue
		}
		state := c.stateOf(r)
		a = why.Answer{
			Reason: why.Running, Since: state.Since, Cause: fmt.Sprintf("a Reconcile runs since %s, as attempt %d%s", since(state.Since), state.Attempt, because(state.Reasons)),
			Evidence: append([]string{"reconcileID: " + state.ReconcileID}, describe(state.Reasons)...),
		}
		if !state.Slow {
			c.explainAgain(r, &a)
		}
		if !state.Slow && time.Since(state.Since) < busyLong {
			return a, true
		}
		stack := cutStack(run.Stacks(), w.goroutine)
		if state.Slow {
			a.Reason, a.Cause = why.Slow, "a Reconcile hangs, or is slow: it runs since "+since(state.Since)
			a.Remedy = "look at its stack below; give the call that waits a context with a timeout, and set Options.Deadline"
		}
		if at := callIn(stack); at != "" {
			a.Cause += ", now in " + at
		}
		a.Evidence = append(a.Evidence, strings.Split("stack: "+stack, "\n")...)
		return a, true
	}
	return a, false
}

// explainAgain names what was wrong before a Reconcile that runs, and has not passed yet.
func (c *Controller[K]) explainAgain(r *running[K], a *why.Answer) {
	of := c.records.look(r.item.Key())
	runs, evidence := "; another one runs since "+since(a.Since), a.Evidence
	switch {
	case r.past != nil && r.past.failure != nil:
		f := r.past.failure
		text, _, _ := strings.Cut(f.Err, "\n")
		*a = why.Answer{
			Reason: f.Reason, Since: f.At, Remedy: remedy(f.Reason),
			Cause: fmt.Sprintf("the last %sfailed%s: %s", attempts(r.item.Attempt()-1), runs, text),
		}
	case of.fight.fights(c.now()):
		*a = fought(of.fight)
		a.Cause += runs
	case of.spin.spins(c.now()):
		*a = hotLoop(&of.spin)
		a.Cause += runs
	}
	a.Evidence = evidence
}

func hotLoop(s *spin) why.Answer {
	a := why.Answer{
		Reason: why.HotLoop, Remedy: "write only what has changed, or return a longer RequeueAfter",
		Cause: fmt.Sprintf("the key made itself due %d times in a row, and is slowed down to one Reconcile in %s", s.row, s.pause()),
	}
	if s.fields != "" {
		a.Cause += "; each time it changes " + s.fields
	}
	return a
}

// explainQueued explains the state of a key in the queue.
func (c *Controller[K]) explainQueued(k *workqueue.KeyState[K], of *record[K]) (a why.Answer) {
	switch {
	case k.Paused || c.pausedAll.Load():
		a = c.paused(of)
	case k.State == workqueue.Parked:
		a = parked(k, of)
	case of.spin.spins(c.now()) && k.State == workqueue.Waiting:
		a = hotLoop(&of.spin)
	case of.past != nil && of.past.failure != nil && k.State != workqueue.Held:
		a = failing(of.past.failure, k)
	case of.fight.fights(c.now()) && of.fight.paused && (k.State == workqueue.Waiting || k.State == workqueue.Ready):
		a = fought(of.fight)
	case k.State == workqueue.Ready:
		a = c.ready(k)
	case k.State == workqueue.Waiting:
		a = why.Answer{Reason: why.Scheduled, Cause: "nothing is wrong; the next Reconcile is due in " + until(k.Due) + wants(k)}
	case k.State == workqueue.Idle:
		a = why.Answer{Reason: why.Done, Cause: "nothing is due"}
	default:
		a = why.Answer{Reason: why.Running, Cause: "a Reconcile begins or ends"}
	}
	if a.Since.IsZero() {
		a.Since = k.Since
	}
	a.Evidence = append(a.Evidence, describe(k.Reasons)...)
	return a
}

// fought explains a key that fights.
func fought(f *fight) why.Answer {
	by := "another writer"
	switch {
	case len(f.by) == 1:
		by = "the field manager " + f.by[0]
	case len(f.by) > 1:
		by = "the field managers " + strings.Join(f.by, ", ")
	}
	what := "an object"
	if w := f.write(f.object); w != nil {
		what = strings.TrimSpace(w.Resource + " " + strings.TrimPrefix(w.Namespace+"/"+w.Name, "/"))
	}
	return why.Answer{
		Reason: why.Fight, Remedy: "let one of them own the field: leave it out of the other's writes",
		Cause: fmt.Sprintf("this controller and %s overwrite %s of %s in turn, %d times in a row", by, strings.Join(pathsOf(f.fields), ", "), what, f.rounds),
	}
}

func (c *Controller[K]) paused(of *record[K]) why.Answer {
	a := why.Answer{Reason: why.Paused}
	switch by := textsOf(of.pausedBy); {
	case len(by) > 0:
		a.Cause, a.Remedy = "the key is paused by "+strings.Join(by, ", "), resumption(of.pausedBy)
	default:
		a.Cause, a.Remedy = "the controller is paused", "call Resume"
	}
	return a
}

// parked explains a key that waits for its caches.
func parked[K comparable](k *workqueue.KeyState[K], of *record[K]) why.Answer {
	a := why.Answer{
		Reason: why.AwaitsOwnWrites, Cause: "the key waits until the caches show its own writes: " + k.ParkReason,
		Remedy: "wait, at most Options.ReadYourWrites; if it repeats, look at the state of the informers",
	}
	if of.past != nil && of.past.failure != nil {
		f := of.past.failure
		text, _, _ := strings.Cut(f.Err, "\n")
		a.Reason, a.Since, a.Remedy = f.Reason, f.At, remedy(f.Reason)
		a.Cause = fmt.Sprintf("the last %sfailed, %s ago: %s; the retry waits until the caches show the writes: %s", attempts(k.Attempts), since(f.At), text, k.ParkReason)
	}
	if of.past != nil && of.past.stale {
		a.Reason, a.Cause = why.AwaitsCaches, "its Reconcile returned Stale, and the key waits until the caches are current: "+k.ParkReason
	}
	return a
}

// failing explains a key whose last Reconcile failed.
func failing[K comparable](f *Failure, k *workqueue.KeyState[K]) why.Answer {
	a := why.Answer{Reason: f.Reason, Since: f.At, Evidence: []string{"reconcileID: " + f.ReconcileID}}
	text, _, _ := strings.Cut(f.Err, "\n")
	switch {
	case f.Terminal:
		a.Cause = fmt.Sprintf("the last Reconcile failed %s ago and is not retried: %s", since(f.At), text)
		a.Remedy = "correct the cause, and change the object or set its annotation " + RequeueAnnotation
	case k.State == workqueue.Ready:
		a.Cause = fmt.Sprintf("the last %sfailed, and the retry waits for a worker: %s", attempts(k.Attempts), text)
		a.Remedy = remedy(f.Reason)
	default:
		a.Cause = fmt.Sprintf("the last %sfailed, %s ago; the next attempt is in %s: %s", attempts(k.Attempts), since(f.At), until(k.Due), text)
		a.Remedy = remedy(f.Reason)
	}
	return a
}

func attempts(n int) string {
	if n < 2 {
		return "Reconcile "
	}
	return fmt.Sprintf("%d Reconciles ", n)
}

var remedies = map[why.Reason]string{
	why.Forbidden:            "give the ServiceAccount the right that the error names",
	why.Denied:               "change the object as the webhook or policy asks, or the rule",
	why.Invalid:              "correct the object that Reconcile writes",
	why.Conflict:             "nothing, if it passes; else find the other writer in metadata.managedFields",
	why.Throttled:            "make fewer requests, or give the ServiceAccount a priority level of its own",
	why.Missing:              "create what is missing, or return no error and watch its kind",
	why.KindMissing:          "install the CustomResourceDefinition",
	why.NamespaceTerminating: "wait until the namespace is gone",
	why.Unavailable:          "make the server that the error names answer",
	why.TimedOut:             "find out why the call takes so long, or raise its time limit",
	why.Panicked:             "correct the panic; the log has its stack",
	why.Fenced:               "nothing: the next leader continues",
}

func remedy(r why.Reason) string {
	return cmp.Or(remedies[r], "correct the cause that the error names")
}

// ready explains a key that waits for a worker.
func (c *Controller[K]) ready(k *workqueue.KeyState[K]) why.Answer {
	p, workers := c.progress(), c.pool.state().want
	limit, _ := c.o.limits()
	a := why.Answer{
		Reason: why.Queued, Cause: fmt.Sprintf("the key is ready, among %d; %d of %d workers are busy", p.Ready, p.Running, workers),
		Remedy: "wait, or give the controller more Workers",
	}
	if p.Running >= workers && p.Longest > min(limit, busyLong) {
		a.Reason = why.WorkersBusy
		a.Cause = fmt.Sprintf("all %d workers are busy, longest with %s, since %s; the key is ready, among %d", workers, p.LongestKey, p.Longest.Round(time.Millisecond), p.Ready)
		a.Remedy = "find out what the running Reconciles wait for, or give the controller more Workers"
	}
	if k.Class != workqueue.Normal {
		a.Evidence = append(a.Evidence, fmt.Sprintf("class: %d", k.Class))
	}
	return a
}

// busyLong is when a running Reconcile counts as the reason for which others wait.
const busyLong = 5 * time.Second

// wants adds why a key is scheduled.
func wants[K comparable](k *workqueue.KeyState[K]) string {
	for _, r := range k.Reasons {
		if r.Event != workqueue.EventAfter {
			return ", because of " + r.Event + " of " + r.Object
		}
	}
	return ", as the last one asked"
}

// because names the newest reason.
func because(reasons []workqueue.Reason) string {
	if len(reasons) == 0 {
		return ""
	}
	r := &reasons[len(reasons)-1]
	return strings.TrimSuffix(", because of "+r.Event+" of "+r.Object, " of ")
}

// describe describes why a key was added.
func describe(reasons []workqueue.Reason) (lines []string) {
	for _, r := range reasons {
		line := fmt.Sprintf("added at %s by %s: %s", r.At.Format(time.RFC3339), r.Source, r.Event)
		if r.Object != "" {
			line += " of " + r.Object
		}
		if r.ResourceVersion != "" {
			line += " at version " + r.ResourceVersion
		}
		if r.Repeats > 0 {
			line += fmt.Sprintf(", and %d times more", r.Repeats)
		}
		lines = append(lines, line)
	}
	return lines
}

func since(t time.Time) string { return rounded(time.Since(t)) }

func until(t time.Time) string {
	if t.IsZero() {
		return "unknown time"
	}
	return rounded(max(0, time.Until(t)))
}

func rounded(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
