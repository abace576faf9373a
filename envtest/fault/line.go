// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

// line is a delay line between the API server's answer and the client. Parts leave in order, when
// the rules allow it. Until a rule affects the answer, the client reads past the line.
type line struct {
	x    *exchange
	body io.ReadCloser
	fill sync.WaitGroup // joined in Close
	more chan struct{}  // holds one: parts may have grown
	room chan struct{}  // holds one: parts may have shrunk, or the line is closed

	// guarded by x.rules.mu
	parts   []part
	size    int  // bytes in parts
	filling bool // the goroutine has been started
	reading bool // the client reads past the line
	closed  bool
}

// part is one arrival: the header (no data), a chunk, or the end (err).
type part struct {
	stamp uint64
	at    time.Time
	data  []byte
	err   error
}

func newLine(x *exchange, body io.ReadCloser) *line {
	l := &line{x: x, body: body, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	l.put(nil, nil)
	return l
}

// fillLocked leaves the start of the goroutine to the client's Read, if one is running.
func (l *line) fillLocked() {
	needed := slices.ContainsFunc(l.x.faults, func(f *Fault) bool { return (f.rule.Lag > 0 || f.rule.Freeze) && !f.removed })
	if needed && !l.filling && !l.reading && !l.closed {
		l.filling = true
		l.fill.Go(l.read)
	}
}

func (l *line) direct(b []byte) (n int, err error, ok bool) {
	mu := &l.x.rules.mu
	mu.Lock()
	defer mu.Unlock()
	if l.filling || len(l.parts) > 0 {
		return 0, nil, false
	}
	l.reading = true
	mu.Unlock()
	n, err = l.body.Read(b)
	mu.Lock()
	l.reading = false
	if l.fillLocked(); !l.filling {
		return n, err, true
	}
	// A rule came during the Read. What the goroutine reads comes later, because it needs mu.
	if n > 0 {
		l.appendLocked(append([]byte(nil), b[:n]...), nil)
	}
	if err != nil {
		l.appendLocked(nil, err)
	}
	return 0, nil, false
}

// chunkSize is the buffer size of net/http's copying.
const chunkSize = 32 << 10

func (l *line) read() {
	buffer := make([]byte, chunkSize)
	for {
		n, err := l.body.Read(buffer)
		if n > 0 && !l.put(append([]byte(nil), buffer[:n]...), nil) {
			return
		}
		if err != nil {
			l.put(nil, err)
			return
		}
	}
}

func (l *line) put(data []byte, err error) bool {
	r := l.x.rules
	defer wake(l.more)
	r.mu.Lock()
	defer r.mu.Unlock()
	for l.size > 0 && l.size+len(data) > r.options.BufferSize && !l.closed {
		r.mu.Unlock()
		<-l.room
		r.mu.Lock()
	}
	l.appendLocked(data, err)
	l.countLocked()
	return !l.closed
}

func (l *line) appendLocked(data []byte, err error) {
	l.x.rules.stamp++
	l.parts = append(l.parts, part{l.x.rules.stamp, time.Now(), data, err})
	l.size += len(data)
}

// countLocked updates the counters of rules that withhold the first part, even if the client does
// not read.
func (l *line) countLocked() {
	if len(l.parts) > 0 {
		l.x.passLocked(l.parts[0], time.Now())
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *line) next(ctx context.Context) (part, error) {
	var first part
	err := l.x.rules.wait(ctx, &l.x.rules.changes, l.more, func(now time.Time) (bool, time.Time) {
		if len(l.parts) == 0 {
			return false, time.Time{}
		}
		ready, at := l.x.passLocked(l.parts[0], now)
		if ready {
			first = l.parts[0]
			l.parts[0] = part{}
			l.parts = l.parts[1:]
			l.size -= len(first.data)
		}
		return ready, at
	})
	if err == nil {
		wake(l.room)
	}
	return first, err
}

func (x *exchange) passLocked(a part, now time.Time) (ready bool, at time.Time) {
	due, frozen := a.at, false
	for _, f := range x.faults {
		if f.rule.Lag > 0 && !f.removed {
			x.request.noteLocked("lag " + f.rule.Lag.String())
			due = due.Add(f.rule.Lag)
		}
		if f.rule.Freeze && x.withheldLocked(f, a.stamp) {
			x.request.noteLocked("freeze")
			frozen = true
		}
	}
	if frozen {
		return false, time.Time{}
	}
	return !now.Before(due), due
}

func (l *line) reader(ctx context.Context) io.ReadCloser {
	var rest part // of what next has returned
	return &lineReader{l, func(b []byte) (int, error) {
		if len(rest.data) == 0 && rest.err == nil {
			if n, err, ok := l.direct(b); ok {
				return n, err
			}
		}
		for len(rest.data) == 0 && rest.err == nil {
			next, err := l.next(ctx)
			if err != nil {
				return 0, err
			}
			rest = next
		}
		n := copy(b, rest.data)
		rest.data = rest.data[n:]
		if len(rest.data) == 0 && rest.err != nil {
			return n, rest.err
		}
		return n, nil
	}}
}

type lineReader struct {
	*line
	read func([]byte) (int, error)
}

func (r *lineReader) Read(b []byte) (int, error) { return r.read(b) }

// Close may be called more than once.
func (l *line) Close() error {
	mu := &l.x.rules.mu
	mu.Lock()
	l.closed = true
	mu.Unlock()
	wake(l.room)
	err := l.body.Close()
	l.fill.Wait()
	return err
}
