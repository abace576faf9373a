// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
)

// skew is the network of a replica whose wall clock is ahead: it changes all times in Leases, so
// that the clock of the bubble is the one that is behind.
type skew struct {
	http.RoundTripper

	ahead time.Duration
	t     *testing.T
}

func (s skew) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Body != nil {
		body, err := io.ReadAll(h.Body)
		if err != nil {
			return nil, err
		}
		body, err = shifted(body, s.ahead)
		testkit.Equal(s.t, err, nil, h.Method, h.URL)
		h = h.Clone(h.Context())
		h.Body, h.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	answer, err := s.RoundTripper.RoundTrip(h)
	if err == nil {
		answer.Header.Del("Content-Length")
		answer.ContentLength = -1
		answer.Body = &skewed{ReadCloser: answer.Body, by: -s.ahead, lines: bufio.NewReader(answer.Body), t: s.t}
	}
	return answer, err
}

// skewed is an answer, or a watch, with its times shifted.
type skewed struct {
	io.ReadCloser

	by    time.Duration
	lines *bufio.Reader
	rest  []byte
	t     *testing.T
}

// Read implements io.Reader.
func (s *skewed) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		s.rest, err = shifted(line, s.by)
		testkit.Equal(s.t, err, nil, line)
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// shifted shifts the times in a JSON text.
func shifted(text []byte, by time.Duration) ([]byte, error) {
	var o any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return text, err
	}
	shift(o, by)
	out, err := json.Marshal(o)
	return append(out, '\n'), err
}

func shift(o any, by time.Duration) {
	switch o := o.(type) {
	case []any:
		for _, of := range o {
			shift(of, by)
		}
	case map[string]any:
		for key, value := range o {
			text, _ := value.(string)
			switch at, err := time.Parse(time.RFC3339Nano, text); {
			case err == nil && (key == "renewTime" || key == "acquireTime"):
				o[key] = at.Add(by).Format("2006-01-02T15:04:05.000000Z07:00")
			case key == shard.SlotsAnnotation && text != "":
				o[key] = shiftedSlots(text, by)
			default:
				shift(value, by)
			}
		}
	}
}

// shiftedSlots shifts the times in an assignment.
func shiftedSlots(text string, by time.Duration) string {
	body, _, _ := strings.Cut(text, `,"sum":"`)
	parts := strings.Split(body, `"since":`)
	for i, part := range parts[1:] {
		n := len(part) - len(strings.TrimLeft(part, "0123456789"))
		ms, _ := strconv.ParseInt(part[:n], 10, 64)
		parts[i+1] = strconv.FormatInt(ms+by.Milliseconds(), 10) + part[n:]
	}
	return sealed(strings.Join(parts, `"since":`))
}

// TestP1_WallClocksAnHourApart: nothing changes while nothing happens, a crash and a graceful move
// are as with one clock, and ages are right.
func TestP1_WallClocksAnHourApart(t *testing.T) {
	if testing.Short() {
		t.Skip("long: many minutes of virtual time")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		for name, ahead := range map[string]time.Duration{"a": 0, "b": time.Hour, "c": -time.Hour} {
			f.startSpecial(special{name: name, wrap: func(rt http.RoundTripper) http.RoundTripper { return skew{rt, ahead, t} }})
		}
		f.passUntil("three members", time.Minute, even(3, 256))
		f.pass(5 * time.Second) // a new member believes others' times until it is seen
		owners := f.owners()
		f.agesSince(time.Now(), 5*time.Minute)
		from, to := moved(owners, f.owners())
		testkit.Len(t, from, 0, fmt.Sprintf("slots move to %v", to))
		for _, r := range f.all {
			r.cut.Store(true)
			cut := time.Now()
			f.agesSince(cut, 12*time.Second)
			f.agesSince(cut, 4*time.Second)
			if counts := f.judge(); counts[r.name] != 0 || !even(2, 256)(counts) {
				t.Errorf("after the crash of %s: %v", r.name, counts)
			}
			r.cut.Store(false)
			f.passUntil("three members again", time.Minute, even(3, 256))
			f.pass(5 * time.Second)
		}
		for _, r := range f.all {
			work, done := busy(t, r)
			done = sync.OnceFunc(done)
			defer done()
			next := f.startSpecial(special{name: "after-" + r.name, wrap: func(rt http.RoundTripper) http.RoundTripper { return skew{rt, 0, t} }})
			f.pass(time.Second)
			began := time.Now()
			r.stop()
			f.agesSince(began, 30*time.Second)
			for _, other := range append(f.members(r), next) {
				f.oneDrains(other, work, began)
			}
			done()
			f.passUntil("the next one", 2*time.Minute, func(counts map[string]int) bool { return counts[r.name] == 0 && counts[next.name] > 80 })
			f.pass(5 * time.Second) // its renewals show that it has seen the slot
		}
	})
}

// members returns the replicas that run, but for one.
func (f *fleet) members(but *replica) (all []*replica) {
	for _, r := range f.all {
		if r != but && r.Status().Member != "" {
			all = append(all, r)
		}
	}
	return all
}

// agesSince lets time pass. Reported slots are unserved since the fault, or its last renewal.
func (f *fleet) agesSince(fault time.Time, d time.Duration) {
	f.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); {
		f.pass(500 * time.Millisecond)
		for _, r := range f.all {
			for _, u := range r.Status().Unserved {
				if u.Since.Before(fault.Add(-3*time.Second)) || u.Since.After(time.Now()) {
					f.t.Fatalf("%s reports %d slots for %s, and the fault was %s ago: %s", r.name, len(u.Slots), time.Since(u.Since), time.Since(fault), u.Reason)
				}
			}
		}
	}
}

func (f *fleet) oneDrains(r *replica, work *owned.Slot, since time.Time) {
	f.t.Helper()
	all, at := unserved(r)
	if fmt.Sprint(all) != fmt.Sprint(shard.SlotList{int(work.Number)}) || at.Before(since) || at.After(since.Add(6*time.Second)) {
		f.t.Errorf("%s reports %s since %s, want slot %d since %s: %+v", r.name, all, at, work.Number, since, r.Status().Unserved)
	}
}
