// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
)

// deaf is a transport whose requests have no answer while on, even after the end of their contexts,
// as with an exec plugin that hangs. So do the streams of watches.
type deaf struct {
	http.RoundTripper

	of   func(*http.Request) bool
	on   *atomic.Bool
	free <-chan struct{}
}

func (d deaf) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

func (d deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	if !d.of(r) {
		return d.RoundTripper.RoundTrip(r)
	}
	if d.on.Load() {
		<-d.free
	}
	answer, err := d.RoundTripper.RoundTrip(r)
	if err == nil && strings.Contains(r.URL.RawQuery, "watch=") {
		answer.Body = &deafBody{answer.Body, d}
	}
	return answer, err
}

type deafBody struct {
	io.ReadCloser

	d deaf
}

func (b *deafBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.d.on.Load() {
		<-b.d.free
	}
	return n, err
}

// hung starts a replica with such a transport.
func (f *fleet) hung(name string, of func(*http.Request) bool) (r *replica, on *atomic.Bool, mend func()) {
	on, free := &atomic.Bool{}, make(chan struct{})
	r = f.startSpecial(special{name: name, wrap: func(next http.RoundTripper) http.RoundTripper { return deaf{next, of, on, free} }})
	return r, on, func() {
		on.Store(false)
		close(free)
	}
}

func every(*http.Request) bool { return true }

// TestP2_AMemberWhoseRequestsHang: others take over its slots, its Check fails, and it joins again
// when the requests return.
func TestP2_AMemberWhoseRequestsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.end()
		a, on, mend := f.hung("a", every)
		f.start("b", shard.Options{})
		f.passUntil("two members", time.Minute, even(2, 256))
		on.Store(true)
		f.passUntil("one member", 30*time.Second, func(counts map[string]int) bool { return counts["a"] == 0 && counts["b"] == 256 })
		f.pass(time.Minute)
		testkit.Equal(t, a.over.Load(), false, "a has ended")
		testkit.ErrorContains(t, a.Check(nil), "has not returned since", "Check returns")
		mend()
		f.passUntil("two members again", time.Minute, even(2, 256))
		testkit.Equal(t, a.Check(nil), nil)
	})
}

// TestM1_AMemberWhoseRequestsHangStops: Run ends, and its error names the requests.
func TestM1_AMemberWhoseRequestsHangStops(t *testing.T) {
	for name, of := range map[string]func(*http.Request) bool{
		"all":                  every,
		"of the group's Lease": func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/leases/web") },
		"watches":              func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "watch=") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				a, on, mend := f.hung("a", of)
				f.passUntil("one member", time.Minute, even(1, 256))
				on.Store(true)
				f.pass(3 * time.Second)
				began := time.Now()
				a.stop()
				err := <-a.done
				testkit.AtMost(t, time.Since(began), 25*time.Second)
				testkit.ErrorContains(t, err, "has not returned since", "Run returns")
				mend()
				synctest.Wait()
			})
		})
	}
}
