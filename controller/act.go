// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/setpoint-dev/setpoint/why"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// overHTTP is the by of the pauser of Act.
type overHTTP struct{}

// Act does an action with a known key, for package debug: "requeue", "pause" or "resume". The key
// is given by its text, as KeySummary.Key has it. by is who asks. A pause ends with "resume", with
// the term of leadership, and like PauseKey. Only the replica that reconciles the key can act.
//
// Act logs each call. It returns a sentence about the result, or an error with what to do instead.
// It looks at all keys; for a million it takes about a second.
func (c *Controller[K]) Act(ctx context.Context, action, key, by string) (result string, err error) {
	result, err = c.act(action, key, by)
	log := c.logger(ctx).With("action", action, "key", key, "by", by)
	if err != nil {
		log.Info("refused an action over HTTP", "err", err)
		return "", c.named(err)
	}
	log.Info("did an action over HTTP", "result", result)
	return result, nil
}

func (c *Controller[K]) act(action, text, by string) (result string, err error) {
	leading := c.pool.state().leading
	key, known := c.keyOf(text)
	a := c.explainLead(key)
	switch {
	case !known && (leading || a == nil):
		return "", fmt.Errorf("no key %q is queued, in progress, failing or remembered; use the text of a key of /debug/keys, or an annotation of the object", text)
	case a != nil:
		return "", fmt.Errorf("%s; %s", a.Cause, a.Remedy)
	}
	me := pauser{overHTTP{}, fmt.Sprintf("%s (over HTTP since %s)", by, time.Now().UTC().Format(time.RFC3339))}
	before := c.records.look(key).pausedBy
	switch action {
	case "requeue":
		if c.shards.accepts(key, false) {
			c.queue.RequeueNow(key, workqueue.Reason{Source: by + " over HTTP", Event: "requeue", Object: text})
		}
		if len(before) > 0 {
			return fmt.Sprintf("%s is due when its pause ends; it is paused by %s", text, strings.Join(textsOf(before), ", ")), nil
		}
		if c.pausedAll.Load() {
			return text + " is due when the controller is resumed", nil
		}
		return text + " is due now", nil
	case "pause":
		c.setPause(key, me, true)
		return fmt.Sprintf("%s is paused until it is resumed here, or this replica stops or loses the lead; a pause by the annotation %s lasts longer", text, PausedAnnotation), nil
	case "resume":
		return c.resumeOverHTTP(key, text, before)
	}
	return "", fmt.Errorf("the action %q is unknown; use requeue, pause or resume", action)
}

func (c *Controller[K]) resumeOverHTTP(key K, text string, before []pauser) (result string, err error) {
	c.endPauseOverHTTP(key)
	after := c.records.look(key).pausedBy
	paused := fmt.Sprintf("paused by %s; %s", strings.Join(textsOf(after), ", "), resumption(after))
	switch {
	case len(before) == 0:
		return "", fmt.Errorf("%s is not paused; requeue makes it due", text)
	case len(after) == 0 && c.pausedAll.Load():
		return text + " is resumed, but the controller is paused", nil
	case len(after) == 0:
		return text + " is resumed", nil
	case len(before) == len(after):
		return "", fmt.Errorf("%s is not paused over HTTP, but %s", text, paused)
	}
	return fmt.Sprintf("%s is still %s", text, paused), nil
}

// endPauseOverHTTP ends the pause of a key by Act, if any.
func (c *Controller[K]) endPauseOverHTTP(key K) { c.setPause(key, pauser{by: overHTTP{}}, false) }

// endPausesOverHTTP ends the pauses by Act of the keys that this replica lost. The next one does
// not know them.
func (c *Controller[K]) endPausesOverHTTP(lost func(K) bool) {
	for key, r := range c.records.all() {
		if len(r.pausedBy) > 0 && lost(key) {
			c.endPauseOverHTTP(key)
		}
	}
}

// resumption returns what ends pauses.
func resumption(by []pauser) string {
	isHTTP := func(p pauser) bool { return p.by == overHTTP{} }
	const here = "resume it on the page of /debug/"
	const other = "remove the annotation " + PausedAnnotation + " with kubectl setpoint resume, or call ResumeKey"
	switch {
	case !slices.ContainsFunc(by, isHTTP):
		return other
	case slices.ContainsFunc(by, func(p pauser) bool { return !isHTTP(p) }):
		return here + ", and " + other
	}
	return here
}

// ExplainKey explains why a known key is reconciled or not, for package debug. The key is given by
// its text and may name no object. Explain knows more about an object.
func (c *Controller[K]) ExplainKey(text string) (a why.Answer, known bool) {
	key, known := c.keyOf(text)
	if !known {
		return why.Answer{}, false
	}
	of := &explained[K]{key: key}
	a, idle := c.stateOfKey(of)
	if idle {
		a = c.done(of)
	}
	a.Controller, a.Key = c.name, text
	a.Evidence = append(a.Evidence, c.describePast(key)...)
	return a, true
}

// keyOf returns the known key with a text. No lock is held while user code makes texts.
func (c *Controller[K]) keyOf(text string) (key K, known bool) {
	is := func(key K) bool { return fmt.Sprint(key) == text }
	for key := range c.current.Load().Keys() { // those in progress, too
		if is(key) {
			return key, true
		}
	}
	all := c.records.known()
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return c.past.find(text)
}

func (t *records[K]) known() []K {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.keys))
}
