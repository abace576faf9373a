// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestL2_EitherClockEndsTheTrust checks the arithmetic alone.
func TestL2_EitherClockEndsTheTrust(t *testing.T) {
	const s = time.Second
	type look struct{ mono, wall time.Duration }
	for name, c := range map[string]struct {
		looks []look
		want  bool // whether it is over at the last look
	}{
		"in time":                        {[]look{{0, 0}, {10*s - 1, 10*s - 1}}, false},
		"time is over":                   {[]look{{10 * s, 10 * s}}, true},
		"the machine slept":              {[]look{{1 * s, 3600 * s}}, true},
		"the clock was set back":         {[]look{{10 * s, -3600 * s}}, true},
		"set back, and time is left":     {[]look{{9 * s, -3600 * s}}, false},
		"set forward, and back again":    {[]look{{1 * s, 11 * s}, {2 * s, 2 * s}}, true},
		"back first, and then as before": {[]look{{1 * s, -5 * s}, {2 * s, 2 * s}}, false},
	} {
		trust, over := trust{limit: 10 * s}, false
		for _, l := range c.looks {
			over = trust.over(l.mono, l.wall)
		}
		testkit.Equal(t, over, c.want, name, "over")
	}
	for _, limit := range []time.Duration{0, -1} {
		if trust := (trust{limit: limit}); !trust.over(0, 0) {
			t.Errorf("%s is trusted", limit)
		}
	}
}

// FuzzTrust: with any clocks, the trust is over after either has run for the limit, and only a
// renewal restores it.
func FuzzTrust(f *testing.F) {
	f.Add(int64(10), []byte{1, 1, 1, 250, 0, 3, 9, 9, 1})
	f.Add(int64(300), []byte{0, 0, 2, 100, 100, 0, 200, 200, 0})
	f.Fuzz(func(t *testing.T, limit int64, steps []byte) {
		trust, lost := trust{limit: time.Duration(limit)}, false
		var mono, wall time.Duration
		for ; len(steps) >= 3; steps = steps[3:] {
			if steps[2]%4 == 3 {
				trust.lost = false
				mono, wall, lost = 0, 0, false
			}
			mono += time.Duration(steps[0])
			wall += time.Duration(int8(steps[1])) * 4 // also backwards
			over := trust.over(mono, wall)
			if lost = lost || int64(mono) >= limit || int64(wall) >= limit; over != lost {
				t.Fatalf("after %d and %d of %d: over is %t", mono, wall, limit, over)
			}
		}
	})
}

// TestL2_TheWallClockCounts: after a sleep of the machine, the time has no monotonic reading.
func TestL2_TheWallClockCounts(t *testing.T) {
	for ago, want := range map[time.Duration]bool{9 * time.Second: true, 10 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			leading := New(Token{}, time.Now().Round(0).Add(-ago), 10*time.Second)
			if err := leading.Trusted(); (err == nil) != want {
				t.Errorf("%s after a renewal: %v", ago, err)
			}
		})
	}
}

func TestTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause, start := errors.New("lost"), time.Now()
		leading := New(Token{Lease: "u", ResourceVersion: "7"}, start, 10*time.Second)
		check := func(what string, trusted bool, until time.Duration) {
			t.Helper()
			if err := leading.Trusted(); (err == nil) != trusted {
				t.Errorf("%s: %v", what, err)
			}
			testkit.Equal(t, leading.Until().Sub(start), until, what, "until")
		}
		check("at first", true, 10*time.Second)
		time.Sleep(10*time.Second - 1)
		check("at the end", true, 10*time.Second)
		time.Sleep(time.Nanosecond)
		check("after the end", false, 10*time.Second)
		leading.Extend(start.Add(-time.Second))
		check("after an old renewal", false, 10*time.Second)
		leading.Extend(start.Add(9 * time.Second))
		check("after a renewal", true, 19*time.Second)
		select {
		case <-leading.Done():
			t.Error("done")
		default:
		}
		leading.End(cause)
		leading.End(nil)
		leading.Extend(time.Now())
		check("after its end", false, 20*time.Second)
		<-leading.Done()
		if err := leading.Trusted(); !errors.Is(err, cause) || !strings.Contains(err.Error(), "u@7") {
			t.Error(err)
		}
	})
}

// tapped counts the bytes that are written to a connection. Close lets a concurrent writer go
// first.
type tapped struct {
	net.Conn
	bytes *atomic.Int64
}

func (c tapped) Close() error {
	for range 1000 {
		runtime.Gosched()
	}
	return c.Conn.Close()
}

func (c tapped) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

// TestPart: a part is trusted while its term is trusted and the part has not ended.
func TestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		leading := New(Token{Lease: "u", ResourceVersion: "7"}, start, 10*time.Second)
		one, two := leading.Part("slot 1"), leading.Part("slot 2")
		check := func(part *Term, want string) {
			t.Helper()
			if err := part.Trusted(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		check(one, "")
		time.Sleep(10 * time.Second)
		check(one, "the term of leadership u@7 is not trusted any more")
		one.Extend(time.Now())
		check(one, "not trusted any more")
		leading.Extend(start.Add(time.Second))
		check(one, "")
		if one.Token() != leading.Token() || !one.Until().Equal(leading.Until()) {
			t.Errorf("the part has %s until %s", one.Token(), one.Until())
		}
		one.End(errors.New("moved"))
		<-one.Done()
		check(one, "slot 1 of the term of leadership u@7 has ended: moved")
		check(two, "")
		check(leading, "")
		leading.End(errors.New("lost"))
		check(two, "the term of leadership u@7 has ended: lost")
		select {
		case <-two.Done():
			t.Error("the end of the term has ended a part")
		default:
		}
	})
}

// tooLate returns ways to lose the trust while a connection is made.
func tooLate() map[string]func(leading *Term) (under *Term, lose func()) {
	return map[string]func(*Term) (*Term, func()){
		"by a clock": func(leading *Term) (*Term, func()) { return leading, leading.loseTrust },
		"by a clock, of a part": func(leading *Term) (*Term, func()) {
			return leading.Part("slot 1"), leading.loseTrust
		},
		"the part ends": func(leading *Term) (*Term, func()) {
			part := leading.Part("slot 1")
			return part, func() {
				part.mu.Lock()
				part.ended = errors.New("moved") // as if a connection came just before
				part.mu.Unlock()
			}
		},
	}
}

// loseTrust acts as if another goroutine had asked.
func (t *Term) loseTrust() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trust.lost = true
}

// TestL2_AConnectionThatComesTooLateIsNotUsed: the connection took so long that the trust is over
// by the wall clock, and no timer has ended the wait. No byte of the request is written, in
// HTTP/1.1 or HTTP/2. The same holds if it is a part that has ended.
func TestL2_AConnectionThatComesTooLateIsNotUsed(t *testing.T) {
	for name, begin := range tooLate() {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(proto+", "+name, func(t *testing.T) { lateConnection(t, proto, begin) })
		}
	}
}

func lateConnection(t *testing.T, proto string, begin func(*Term) (*Term, func())) {
	var requests, written atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		io.Copy(io.Discard, r.Body)
		testkit.Equal(t, r.Proto, proto, "a request in")
	}))
	if server.EnableHTTP2 = proto == "HTTP/2.0"; server.EnableHTTP2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	defer server.Close()
	for range 5 {
		leading := New(Token{}, time.Now(), time.Hour)
		under, lose := begin(leading)
		base := server.Client().Transport.(*http.Transport).Clone()
		base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			lose()
			return tapped{conn, &written}, err
		}
		put := func(under *Term) error {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, strings.NewReader("{}"))
			resp, err := under.RoundTrip(base, req, true)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			return err
		}
		err := put(under)
		if fenced, ok := errors.AsType[*RefusedError](err); !ok || fenced.Uncertain {
			t.Fatal(err)
		}
		if n := written.Load(); n != 0 && proto == "HTTP/1.1" {
			t.Fatalf("%d bytes were written", n)
		}
		leading.Extend(time.Now())
		if proto == "HTTP/2.0" { // the connection is still good
			if err := put(leading); err != nil || requests.Swap(0) != 1 {
				t.Fatalf("after a renewal: %v", err)
			}
		}
		base.CloseIdleConnections()
		leading.End(nil)
	}
	server.Close()
	testkit.Equal(t, requests.Load(), 0, "requests have arrived")
}
