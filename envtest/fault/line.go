// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"io"
	"sync"
	"time"
)

// line is a delay line between the API server's answer and the client. Parts enter as they arrive
// and leave in order, when the rules of their request allow it.
type line struct {
	x    *exchange
	body io.ReadCloser
	fill sync.WaitGroup // the goroutine that reads body, joined in Close
	more chan struct{}  // holds one: parts may have grown
	room chan struct{}  // holds one: parts may have shrunk, or the line is closed

	// These are guarded by x.proxy.mu.
	parts  []part
	size   int // bytes in parts
	closed bool
}

// part is one arrival: the header (no data), a chunk, or the end (err).
type part struct {
	stamp uint64
	at    time.Time
	data  []byte
	err   error
}

// newLine returns a line that contains the header and reads body until it is closed.
func newLine(x *exchange, body io.ReadCloser) *line {
	l := &line{x: x, body: body, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	l.put(nil, nil)
	l.fill.Go(l.read)
	return l
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

// put adds a part, once there is room for it. It reports whether the line is still open.
func (l *line) put(data []byte, err error) bool {
	p := l.x.proxy
	defer wake(l.more)
	p.mu.Lock()
	defer p.mu.Unlock()
	for l.size > 0 && l.size+len(data) > p.options.BufferSize && !l.closed {
		p.mu.Unlock()
		<-l.room
		p.mu.Lock()
	}
	p.stamp++
	l.parts = append(l.parts, part{p.stamp, time.Now(), data, err})
	l.size += len(data)
	return !l.closed
}

// wake wakes the receiver of c, now or at its next receive. It never blocks.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// next removes and returns the first part when it is due.
func (l *line) next(ctx context.Context) (part, error) {
	var first part
	err := l.x.proxy.wait(ctx, &l.x.proxy.rules, l.more, func(now time.Time) (bool, time.Time) {
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

// passLocked reports whether the client may have a part of the answer now, and otherwise when, if
// known.
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

// reader returns the body that the client sees, until ctx ends.
func (l *line) reader(ctx context.Context) io.ReadCloser {
	var rest part // of what next has returned
	return &lineReader{l, func(b []byte) (int, error) {
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
	p := l.x.proxy
	p.mu.Lock()
	l.closed = true
	p.mu.Unlock()
	wake(l.room)
	err := l.body.Close()
	l.fill.Wait()
	return err
}
