// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/run"
)

// Shares of Target.QuietLimit.
const (
	oddShare     = 3  // 1 minute: between two comparisons because of odd events
	spreadShare  = 18 // 10 seconds; also between two comparisons if watches break
	confirmShare = 60 // 3 seconds: a replica behind a load balancer may lag
)

func (t *Target) confirmAfter() time.Duration { return t.quietLimit() / confirmShare }

// Restored describes an API server whose data went back, or was replaced.
type Restored struct {
	// Before is the version that the API server had shown, and Version the one that it has now.
	Before, Version string
	// Object is set if the versions did not go back, but this object's state at Before is not the
	// one that the API server had shown.
	Object string
}

// Error describes the evidence.
func (r *Restored) Error() string {
	text := fmt.Sprintf("the API server was at version %s, and its data is at version %s now", r.Before, r.Version)
	if r.Object != "" {
		text = fmt.Sprintf("the API server does not know the state of %s that it showed before version %s", r.Object, r.Before)
	}
	return text + ": it was restored from a backup, or replaced"
}

// finding is the result of a comparison with the API server.
type finding struct {
	version  uint64    // of the collection; 0: unknown
	restored *Restored // nil: nothing contradicts the timeline
}

// compare reads the object of the newest change at a known version. The request has no
// resourceVersion, so its answer is current. If the object has changed since, compare also reads
// its earlier state. It returns an error if the API server does not answer.
func (a *asker) compare(ctx context.Context, m *meta.RESTMapping, k knowledge) (finding, error) {
	sent, newest, last := time.Now(), k.newest, k.last
	if newest == 0 {
		return finding{}, nil
	}
	list, err := a.readOne(ctx, m, last.name, metav1.ListOptions{})
	if err != nil && refusesParameter(err) && last.name.Name != "" {
		last = change{} // perhaps without field selectors
		list, err = a.readOne(ctx, m, last.name, metav1.ListOptions{})
	}
	switch {
	case err == nil:
	case apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.ReasonForError(err) == metav1.StatusReasonUnknown: // no answer of the API server
		return finding{}, err
	case apierrors.IsInternalError(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return finding{}, err // it may have just started
	default:
		return finding{}, nil // the watch reports what is wrong
	}
	f := finding{version: parse(list.ResourceVersion)}
	r := &Restored{Before: strconv.FormatUint(newest, 10), Version: list.ResourceVersion}
	switch {
	case f.version == 0:
		return f, nil
	case f.version < k.least:
		f.restored, r.Before = r, strconv.FormatUint(k.least, 10)
		return f, nil
	}
	r.Object = object.Name(last.name)
	switch is := last.in(list, newest); is {
	case unclear:
		if err := a.slow(ctx); err != nil {
			return f, err
		}
		then := metav1.ListOptions{ResourceVersion: r.Before, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		if was, err := a.readOne(ctx, m, last.name, then); err == nil && last.in(was, newest) != agrees {
			f.restored = r
		}
	case differs:
		f.restored = r
	}
	if f.restored == nil {
		a.timeline.confirm(sent)
	}
	return f, nil
}

func (a *asker) readOne(ctx context.Context, m *meta.RESTMapping, name types.NamespacedName, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	t := *a.target
	o.Limit = 1
	if name.Name != "" {
		if t.Namespace == "" && m.Scope.Name() == meta.RESTScopeNameNamespace {
			t.Namespace = name.Namespace
		}
		if t.Name == "" {
			one := fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
			t.Fields = strings.TrimPrefix(t.Fields+","+one, ",")
		}
	}
	c, err := t.metadata(m)
	if err != nil {
		return nil, err
	}
	return c.List(ctx, t.narrow(o))
}

type agreement uint8

const (
	agrees  agreement = iota
	unclear           // changed after the newest known version, or gone
	differs
)

// in compares the change with a list that has at most its object. newest is the newest known
// version: later changes are still to come.
func (c *change) in(list *metav1.PartialObjectMetadataList, newest uint64) agreement {
	if c.name.Name == "" {
		return agrees
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.Name != c.name.Name {
			continue
		}
		switch v := parse(o.ResourceVersion); {
		case c.deleted && v < c.version:
			return differs
		case c.deleted: // it was created again, or has left a selection
			return agrees
		case o.UID == c.uid && v == c.version:
			return agrees
		case v > newest:
			return unclear
		default:
			return differs
		}
	}
	if c.deleted {
		return agrees
	}
	return unclear
}

// checker compares the timeline beside a running watch. Only the stream's goroutine uses it.
type checker struct {
	*asker

	running sync.WaitGroup
	cancel  context.CancelFunc
	results <-chan asked     // nil: it does not ask
	next    <-chan time.Time // when it asks again, or nil
	quiet   bool             // it asks because the watch was quiet
	suspect bool             // the last reading contradicts the timeline

	// What the readings are compared with. A second reading has the same: since the first one, the
	// watch may have sent events of a restored server.
	known knowledge
	held  bool // known is of a break that is to be compared

	later  *knowledge // of another break meanwhile, which is compared next; or nil
	failed int        // comparisons in a row without an answer
}

type asked struct {
	finding

	err error
}

// afterBreak asks because a watch has ended. Watches may break often.
func (c *checker) afterBreak(ctx context.Context) {
	if c.later == nil && (c.held || c.suspect || c.results != nil) {
		c.later = new(c.timeline.now())
	}
	c.within(ctx, c.target.quietLimit()/spreadShare)
}

// afterDoubt asks because an answer was odd.
func (c *checker) afterDoubt(ctx context.Context) { c.within(ctx, c.target.confirmAfter()) }

// afterEvent asks because an event has a lower version than one before. It waits a while: a strange
// API server may send many such events.
func (c *checker) afterEvent() {
	if c.results == nil && c.next == nil {
		c.hold()
		c.next = time.After(c.target.quietLimit() / oddShare)
	}
}

// hold keeps what is known now: later events may be a restored server's.
func (c *checker) hold() {
	if !c.held {
		c.known, c.held = c.timeline.now(), true
	}
}

func (c *checker) within(ctx context.Context, least time.Duration) {
	switch wait := least - c.timeline.sinceAsked(); {
	case c.results != nil || c.suspect:
	case wait <= 0:
		c.begin(ctx)
	default:
		c.hold()
		c.next = time.After(wait)
	}
}

// begin asks, unless it does already.
func (c *checker) begin(ctx context.Context) {
	if c.results != nil {
		return
	}
	c.next = nil
	c.timeline.ask()
	if !c.suspect && !c.held {
		c.known = c.timeline.now()
	}
	c.held = false
	known := c.known
	results := make(chan asked, 1)
	c.results = results
	ctx, c.cancel = context.WithTimeoutCause(ctx, unanswered, fmt.Errorf("the API server has not answered for %s", unanswered))
	c.running.Go(func() {
		var f finding
		err := c.slow(ctx)
		var m *meta.RESTMapping
		if err == nil {
			m, err = c.target.Backend.MappingWithin(ctx, c.target.Kind, askAgain)
		}
		if err == nil {
			f, err = c.compare(ctx, m, known)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		results <- asked{f, err}
	})
}

// end takes a result. It returns the evidence if two readings in a row contradict the timeline. A
// replica behind a load balancer may lag, so the second one is a moment later.
func (c *checker) end(a asked) *Restored {
	c.cancel()
	c.results, c.cancel = nil, nil
	switch {
	case a.err != nil:
		c.next, c.held = time.After(c.again(a.err)), true
		return nil
	case a.restored == nil:
		c.suspect = false
		if c.later != nil {
			c.known, c.held, c.later = *c.later, true, nil
			c.next = time.After(c.target.quietLimit() / spreadShare)
		}
		c.informer.Compared()
	case c.suspect:
		return a.restored
	default:
		c.suspect = true
		c.next = time.After(c.target.confirmAfter())
	}
	c.failed = 0
	return nil
}

// again returns when to compare again after an error: as late as the API server asks for, and later
// each time, in other moments than other informers.
func (c *checker) again(err error) time.Duration {
	wait := c.target.quietLimit() / spreadShare
	if c.suspect {
		wait = c.target.confirmAfter()
	}
	wait = min(wait<<c.failed, c.target.quietLimit())
	c.failed = min(c.failed+1, 8)
	return max(wait+rand.N(wait/5+1), askedFor(err)) //nolint:gosec // no secrets
}

// close ends a running comparison.
func (c *checker) close() {
	if c.cancel != nil {
		c.cancel()
	}
	c.running.Wait()
	c.results, c.cancel = nil, nil
}

// relist is a list that must be made, because the API server has other data now.
type relist struct {
	lists int64         // that had begun before
	due   time.Time     // the list
	mark  object.Object // delivered after it
}

// Relist makes a list after a pause, unless one begins before that, and then delivers a mark: see
// Mark. It returns at once.
func (l *ListerWatcher) Relist(after time.Duration, mark object.Object) {
	l.timeline.forget()
	l.fresh.Store(true)
	l.pending.Store(&relist{l.begun.Load(), time.Now().Add(after), mark})
	run.Poke(l.poked)
}

// Spread is the time in which all informers of a restored API server begin to list again.
func (l *ListerWatcher) Spread() time.Duration { return l.target.quietLimit() / spreadShare }

// Doubt makes a running watch compare itself with the API server, soon and without an interruption.
func (l *ListerWatcher) Doubt() { run.Poke(l.doubts) }

// Contradicts reports whether a write's answer has a lower version than the informer knew before
// the write was sent, and no later comparison has explained it. The versions of no-ops are lower,
// too.
func (l *ListerWatcher) Contradicts(version string, sent, answered time.Time) bool {
	return l.timeline.contradicts(version, sent, answered)
}

// Newest returns the newest version that the API server has certainly reached, or 0.
func (l *ListerWatcher) Newest() uint64 {
	return l.timeline.now().least
}

// Wrote records a write, from its answer. If the watch has not reached it for long, it is compared
// with the API server.
func (l *ListerWatcher) Wrote(version string, answered time.Time) {
	if ahead := l.timeline.written(version); ahead && time.Since(answered) > l.Spread() {
		l.Doubt()
	}
}
