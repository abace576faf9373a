// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"container/list"
	"math"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/term"
)

const forever = time.Duration(math.MaxInt64)

const precise = time.Microsecond

// The package doc explains these limits.
const (
	maxSeries   = 4096
	objectBurst = 25
	objectEvery = 5 * time.Minute
	reserved    = 5 // of objectBurst, for series that are not settled
	totalBurst  = 100
	totalRate   = 50 // a second
)

type regarding struct {
	group, kind, namespace, name string

	uid types.UID
}

type key struct {
	regarding

	eventType      Type
	reason, action string

	term *term.Term // or nil
}

type call struct {
	note    string
	version string // of the object's API
	at      time.Time
}

// batch is the calls that one request counts. It does not change after its first try, so that a
// retry can recognize an Event that a lost answer was about.
type batch struct {
	number      uint64 // of all batches
	calls       int
	note        string
	version     string    // of the object's API
	first, last time.Time // precise; each batch of a series has another last

	tries     int
	notBefore time.Time
	unsure    bool // an earlier try may have been stored
}

type series struct {
	key

	object  *budget
	pending *batch // not tried yet
	current *batch // being sent, or to be tried again
	place   *list.Element
	last    time.Time
	settled bool   // a batch was stored or dropped
	stored  stored // only for the sending goroutine
}

type stored struct {
	name, version string
	count         int64
}

type budget struct {
	*rate.Limiter

	series int // that share it
}

// flush selects batches up to a number, of a term or of any if term is nil.
type flush struct {
	term  *term.Term
	until uint64
}

// schedule decides which series is sent next, without a lock or a clock.
type schedule struct {
	all           map[key]*series
	objects       map[regarding]*budget
	waiting, idle *list.List // of *series, the oldest first
	total         *rate.Limiter
	batches       uint64
}

func newSchedule() *schedule {
	return &schedule{
		all: map[key]*series{}, objects: map[regarding]*budget{}, waiting: list.New(), idle: list.New(),
		total: rate.NewLimiter(totalRate, totalBurst),
	}
}

func (s *schedule) add(k key, c call) (joined, ok bool) {
	of := s.all[k]
	if of == nil {
		if of = s.create(k); of == nil {
			return false, false
		}
	}
	at := c.at.Truncate(precise)
	if b := of.pending; b != nil {
		if at.After(of.last) {
			of.last = at
		}
		b.calls, b.note, b.version, b.last = b.calls+1, c.note, c.version, of.last
		return true, true
	}
	if !at.After(of.last) {
		at = of.last.Add(precise)
	}
	of.last = at
	s.batches++
	of.pending = &batch{number: s.batches, calls: 1, note: c.note, version: c.version, first: at, last: at}
	if of.place != nil && of.current == nil {
		s.idle.Remove(of.place)
		of.place = s.waiting.PushBack(of)
	}
	return false, true
}

func (s *schedule) create(k key) *series {
	if len(s.all) >= maxSeries {
		oldest := s.idle.Front()
		if oldest == nil {
			return nil
		}
		s.forget(s.idle.Remove(oldest).(*series))
	}
	o := s.objects[k.regarding]
	if o == nil {
		o = &budget{Limiter: rate.NewLimiter(rate.Every(objectEvery), objectBurst)}
		s.objects[k.regarding] = o
	}
	o.series++
	of := &series{key: k, object: o}
	of.place = s.idle.PushBack(of)
	s.all[k] = of
	return of
}

func (s *schedule) forget(of *series) {
	delete(s.all, of.key)
	if of.object.series--; of.object.series == 0 {
		delete(s.objects, of.regarding)
	}
}

func (s *schedule) next(now time.Time, f *flush) (due *series, wait time.Duration) {
	var least time.Duration
	if f == nil {
		least = until(s.total, 1, now)
	}
	wait = forever
	for e := s.waiting.Front(); e != nil; e = e.Next() {
		of := e.Value.(*series)
		if w := max(least, of.wait(now, f)); w > 0 {
			wait = min(wait, w)
			continue
		}
		s.waiting.Remove(e)
		of.place = nil
		if of.current == nil {
			of.current, of.pending = of.pending, nil
		}
		return of, 0
	}
	return nil, wait
}

func (of *series) wait(now time.Time, f *flush) time.Duration {
	var retry time.Duration
	if of.current != nil {
		retry = of.current.notBefore.Sub(now)
	}
	switch {
	case f == nil:
	case f.wants(of, of.current) || f.wants(of, of.pending): // a current one goes first
		return retry
	default:
		return forever
	}
	tokens := 1.0
	if of.settled {
		tokens += reserved
	}
	return max(retry, until(of.object.Limiter, tokens, now))
}

func (f *flush) wants(of *series, b *batch) bool {
	return b != nil && (f.term == nil || f.term == of.term || isPart(of.term, f.term)) && b.number <= f.until
}

// isPart reports whether a term is a part of another one, such as a slot: it has the same token.
func isPart(part, of *term.Term) bool { return part != nil && part.Token() == of.Token() }

func until(l *rate.Limiter, tokens float64, now time.Time) time.Duration {
	missing := tokens - l.TokensAt(now)
	if missing < 1e-6 { // tokens are computed
		return 0
	}
	return time.Duration(missing/float64(l.Limit())*float64(time.Second)) + time.Microsecond
}

// settle ends a batch, or lets it be tried again at retry.
func (s *schedule) settle(of *series, retry time.Time) {
	if retry.IsZero() {
		of.current, of.settled = nil, true
	} else {
		of.current.tries++
		of.current.notBefore = retry
	}
	if of.current == nil && of.pending == nil {
		of.place = s.idle.PushBack(of)
	} else {
		of.place = s.waiting.PushBack(of)
	}
}

// hurry makes all retries due now, and lets them fail as often as new ones.
func (s *schedule) hurry() {
	for e := s.waiting.Front(); e != nil; e = e.Next() {
		if b := e.Value.(*series).current; b != nil {
			b.tries, b.notBefore = 0, time.Time{}
		}
	}
}

func (s *schedule) waitingCalls(f *flush) (calls int) {
	for _, of := range s.all {
		for _, b := range []*batch{of.current, of.pending} {
			if f.wants(of, b) {
				calls += b.calls
			}
		}
	}
	return calls
}

// clear forgets all series and returns what waits of each, without batches that are being sent.
func (s *schedule) clear() (waiting []series) {
	for _, of := range s.all {
		left := *of
		if of.place == nil {
			left.current, of.pending = nil, nil
		}
		waiting = append(waiting, left)
	}
	*s = *newSchedule()
	return waiting
}
