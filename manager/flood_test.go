// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// flood sends a number of made-up tokens every 10 ms from an address and counts the answers.
func flood(t *testing.T, h http.Handler, from string, each int, d time.Duration, token func(i int) string) (answers func() map[int]int) {
	var mu sync.Mutex
	got := map[int]int{}
	var all sync.WaitGroup
	all.Go(func() {
		for n := range int(d / (10 * time.Millisecond)) {
			for i := range each {
				all.Go(func() {
					r := request(t.Context(), "GET", "/metrics", "Bearer "+token(n*each+i))
					r.RemoteAddr = from
					status, _ := serve(h, r)
					mu.Lock()
					defer mu.Unlock()
					got[status]++
				})
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return func() map[int]int {
		all.Wait()
		return got
	}
}

func madeUp(i int) string { return fmt.Sprintf("made-up-%d", i) }

func jwt(t *testing.T, header, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		testkit.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(header) + "." + part(claims) + ".c2ln"
}

func serviceAccount(t *testing.T) string {
	return jwt(t, map[string]any{"alg": "RS256"}, map[string]any{"iss": "i", "sub": "s", "aud": []string{"us"}, "exp": time.Now().Add(time.Hour).Unix()})
}

// A flood costs the API server ten reviews a second. Tokens that were valid lately are served at
// once, even when their minute is over.
func TestAFloodOfMadeUpTokensIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		v := newReviewer()
		v.fail = func(*http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			return nil, nil
		}
		h := logged(guarded(v), &log)
		if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer good")); status != 200 {
			t.Fatal(status, body)
		}
		v.count()
		answers := flood(t, h, "192.0.2.1:1234", 1, 3*time.Minute, madeUp)
		for range 180 {
			time.Sleep(time.Second)
			began := time.Now()
			if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer good")); status != 200 || time.Since(began) > 50*time.Millisecond {
				t.Fatalf("%d %s after %s", status, body, time.Since(began))
			}
		}
		got := answers()
		if tokens, access := v.count(); tokens > 1835 || access > 3 || v.most > 16 {
			t.Errorf("%d and %d reviews, %d at once", tokens, access, v.most)
		}
		testkit.AtLeast(t, got[401], 1800)
		testkit.AtLeast(t, got[429], 16000)
		testkit.Len(t, got, 2)
		if n := strings.Count(log.String(), "requests are refused with 429"); n < 3 || n > 4 || strings.Count(log.String(), "\n") > 5 {
			t.Errorf("the log has it %d times:\n%s", n, log.String())
		}
	})
}

// A new token gets through a flood if it comes from another address or looks like a
// ServiceAccount's.
func TestANewTokenGetsThroughAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReviewer()
		v.audiences = []string{"us"}
		h := guarded(v, "us")
		account := serviceAccount(t)
		v.set(func() { v.users[account] = "prometheus" })
		answers := flood(t, h, "192.0.2.1:1234", 2, time.Minute, madeUp)
		more := flood(t, h, "[2001:db8::1]:1234", 2, time.Minute, madeUp)
		time.Sleep(30 * time.Second)
		for from, token := range map[string]string{"192.0.2.2:1": "good", "192.0.2.1:2": account} {
			r := request(t.Context(), "GET", "/metrics", "Bearer "+token)
			r.RemoteAddr = from
			began := time.Now()
			if status, body := serve(h, r); status != 200 || time.Since(began) > 400*time.Millisecond {
				t.Errorf("%s: %d %s after %s", from, status, body, time.Since(began))
			}
		}
		// An IPv6 host has many addresses.
		r := request(t.Context(), "GET", "/metrics", "Bearer other")
		r.RemoteAddr = "[2001:db8::2]:1"
		began := time.Now()
		status, body := serve(h, r)
		if turned := status == 429 && body == "too many new tokens wait for a review; try again"; !turned && time.Since(began) < time.Second {
			t.Errorf("%d %s after %s", status, body, time.Since(began))
		}
		answers()
		more()
	})
}

// Clients of many addresses that disconnect before their turn delay others by one review timeout at
// most.
func TestClientsThatGoAwayLeaveNoBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guarded(newReviewer())
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				r := request(ctx, "GET", "/metrics", "Bearer "+madeUp(i))
				r.RemoteAddr = fmt.Sprintf("[2001:db8:0:%x::1]:1", i)
				serve(h, r)
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		began := time.Now()
		if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer good")); status != 200 || time.Since(began) > 400*time.Millisecond {
			t.Errorf("%d %s after %s", status, body, time.Since(began))
		}
	})
}

// Tokens that look like a ServiceAccount's, and others.
func TestPlausibleTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Unix()
		alg := map[string]any{"alg": "RS256"}
		for name, test := range map[string]struct {
			token string
			turns bool
		}{
			"one audience": {jwt(t, alg, map[string]any{"iss": "i", "sub": "s", "aud": "us"}), true},
			"more":         {jwt(t, alg, map[string]any{"iss": "i", "sub": "s", "aud": []string{"them", "us"}, "exp": now + 900, "nbf": now}), true},
			"for others":   {jwt(t, alg, map[string]any{"iss": "i", "sub": "s", "aud": "them"}), false},
			"expired":      {jwt(t, alg, map[string]any{"iss": "i", "sub": "s", "aud": "us", "exp": now - 9}), false},
			"later":        {jwt(t, alg, map[string]any{"iss": "i", "sub": "s", "aud": "us", "nbf": now + 900}), false},
			"no issuer":    {jwt(t, alg, map[string]any{"sub": "s", "aud": "us"}), false},
			"no subject":   {jwt(t, alg, map[string]any{"iss": "i", "aud": "us"}), false},
			"unsigned":     {jwt(t, map[string]any{"alg": "none"}, map[string]any{"iss": "i", "sub": "s", "aud": "us"}), false},
			"no JSON":      {"YQ.YQ.YQ", false},
			"no base64":    {"?.?.?", false},
			"two parts":    {"YQ.YQ", false},
		} {
			v := newReviewer()
			h := guarded(v, "us")
			answers := flood(t, h, "192.0.2.1:1234", 2, 7*time.Second, madeUp)
			time.Sleep(5 * time.Second)
			began := time.Now()
			status, _ := serve(h, request(t.Context(), "GET", "/metrics", "Bearer "+test.token))
			// Others wait behind nine at most.
			testkit.Equal(t, status == 401 && time.Since(began) < 400*time.Millisecond, test.turns, name)
			answers()
		}
	})
}

func TestTokensAreBounded(t *testing.T) {
	v := newReviewer()
	h := guarded(v)
	if status, body := serve(h, request(t.Context(), "GET", "/metrics", "Bearer "+strings.Repeat("x", 900_000))); status != 431 || body != "the token has 900000 bytes, at most 16384 are reviewed" {
		t.Errorf("%d %s", status, body)
	}
	tokens, _ := v.count()
	testkit.Equal(t, tokens, 0, "reviews")
	status, _ := serve(h, request(t.Context(), "GET", "/metrics", "Bearer "+strings.Repeat("x", 16<<10)))
	testkit.Equal(t, status, 401)
}

// An invalid token costs one review in five seconds, on any number of paths.
func TestATokenThatIsNotValidIsReviewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newReviewer()
		h := guarded(v)
		for i := range 1000 {
			if status, _ := serve(h, request(t.Context(), "GET", fmt.Sprintf("/%d", i), "Bearer bad")); status != 401 {
				t.Fatal(status)
			}
		}
		if tokens, access := v.count(); tokens != 1 || access != 0 {
			t.Errorf("%d and %d reviews", tokens, access)
		}
	})
}
