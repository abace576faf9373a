// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// token is the bearer token in a file. client-go adds it to requests, up to a minute after it
// changed. A nil token changes no request. It is safe for concurrent use.
type token struct {
	file *file
	held atomic.Pointer[[]string] // that the file had, the newest first; never changed
}

const (
	maxHeld = 8 // older tokens have expired
	// A request with an unknown token may have the newest one of the file. This limits the reads if
	// the caller has a token of its own.
	readAtMostEvery = time.Second
)

func newToken(path string) *token {
	t := &token{file: newFile(path)}
	t.held.Store(&[]string{})
	t.load(time.Now())
	return t
}

// current returns the request with the newest token of the file if it has an older one. A token
// that was never in the file is the caller's own.
func (t *token) current(req *http.Request, now time.Time) *http.Request {
	of, ok := bearer(req)
	if t == nil || !ok {
		return req
	}
	held := *t.held.Load()
	if !slices.Contains(held, of) {
		held = t.load(now.Add(-readAtMostEvery))
	}
	if !slices.Contains(held, of) || held[0] == of {
		return req
	}
	return withBearer(req, held[0])
}

// renewed returns a refused request with a newer token, or nil if there is none.
func (t *token) renewed(req *http.Request, sent time.Time) *http.Request {
	of, ok := bearer(req)
	if t == nil || !ok {
		return nil
	}
	held := t.load(sent)
	if !slices.Contains(held, of) || held[0] == of {
		return nil
	}
	return withBearer(req, held[0])
}

// load reads the file, unless it was read after since.
func (t *token) load(since time.Time) []string {
	for {
		old := t.held.Load()
		data, err := t.file.load(since)
		newest := strings.TrimSpace(string(data))
		if err != nil || newest == "" || len(*old) > 0 && (*old)[0] == newest {
			return *old
		}
		held := slices.DeleteFunc(slices.Clone(*old), func(of string) bool { return of == newest })
		held = append([]string{newest}, held[:min(len(held), maxHeld-1)]...)
		if t.held.CompareAndSwap(old, &held) {
			return held
		}
	}
}

const scheme = "Bearer "

func bearer(req *http.Request) (string, bool) {
	return strings.CutPrefix(req.Header.Get("Authorization"), scheme)
}

func withBearer(req *http.Request, of string) *http.Request {
	changed := *req
	changed.Header = req.Header.Clone()
	changed.Header.Set("Authorization", scheme+of)
	return &changed
}
