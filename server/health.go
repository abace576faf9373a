// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Checks returns the checks of a Health. Each request asks for them, so they may come and go. Its
// methods must be safe for concurrent use.
type Checks interface {
	Livez() []*Check
	Readyz() []*Check
}

// Health answers the kubelet's probes:
//
//	/livez, /healthz  fails if the process should be restarted
//	/readyz           fails if the process should get no requests
//	/livez/NAME       one check; also under the other paths
//
// The answers have the format of Kubernetes' own components: 200 and "ok", or 500 and a line for
// each check. ?verbose always returns the lines. ?exclude=NAME skips a check. The lines contain
// error texts: serve them to the kubelet only.
//
// Health is an http.Handler for any mux:
//
//	mux.Handle("/livez", h)
//	mux.Handle("/readyz", h)
//	mux.Handle("/readyz/", h) // for /readyz/NAME
//
// For a [Server], use Mount. A manager has its own Health: see manager.Options.Health.
type Health struct {
	// Checks has the checks. Default nil: no checks, so the answer is "ok".
	Checks Checks

	calls sync.WaitGroup // of ServeHTTP
}

// ServeHTTP answers a request for one of the above paths. To serve them elsewhere, use
// http.StripPrefix. If a check hangs, it may still run after the answer: see Wait.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.answer(w, r, &h.calls) }

// Wait waits until each call of a check by ServeHTTP has returned. Call it when no request can come
// any more, such as after http.Server.Shutdown.
func (h *Health) Wait() { h.calls.Wait() }

var healthPaths = []string{"/livez", "/healthz", "/readyz"}

// Mount adds the paths to a server. Server.Serve then also waits for the calls of checks. Mount
// returns an error if a path is taken.
func (h *Health) Mount(s *Server) error {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.answer(w, r, &s.calls) })
	var wrong []error
	for _, path := range healthPaths {
		wrong = append(wrong, s.Handle("GET "+path, answer), s.Handle("GET "+path+"/{name...}", answer))
	}
	return errors.Join(wrong...)
}

func (h *Health) answer(w http.ResponseWriter, r *http.Request, calls *sync.WaitGroup) {
	path, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	path = "/" + path
	switch {
	case !slices.Contains(healthPaths, path):
		http.Error(w, fmt.Sprintf("there is no check at %q; the paths are %q", r.URL.Path, healthPaths), http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	var checks []*Check
	switch {
	case h.Checks == nil:
	case path == "/readyz":
		checks = h.Checks.Readyz()
	default:
		checks = h.Checks.Livez()
	}
	answerProbe(w, r, path, name, checks, calls)
}

func answerProbe(w http.ResponseWriter, r *http.Request, path, name string, checks []*Check, calls *sync.WaitGroup) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	checks = slices.Clone(checks)
	query := r.URL.Query()
	if name != "" {
		checks = slices.DeleteFunc(checks, func(c *Check) bool { return c.name != name })
		if len(checks) == 0 {
			http.Error(w, fmt.Sprintf("there is no check %q", name), http.StatusNotFound)
			return
		}
	}
	var unknown []string
	for _, excluded := range query["exclude"] {
		left := slices.DeleteFunc(checks, func(c *Check) bool { return c.name == excluded })
		if len(left) == len(checks) {
			unknown = append(unknown, excluded)
		}
		checks = left
	}
	text, failed := askAll(r.Context(), path, checks, calls)
	if len(unknown) > 0 {
		text += fmt.Sprintf("warn: some health checks cannot be excluded: no matches for %q\n", unknown)
	}
	if name == "" {
		verdict := " check passed\n"
		if failed {
			verdict = " check failed\n"
		}
		text += strings.TrimPrefix(path, "/") + verdict
	}
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
	case !query.Has("verbose"):
		text = "ok"
	}
	fmt.Fprint(w, text)
}

func askAll(ctx context.Context, path string, checks []*Check, all *sync.WaitGroup) (text string, failed bool) {
	calls := make([]*call, len(checks))
	for i, c := range checks {
		calls[i] = c.calls.begin(all, 0, func() error { return c.call(ctx) })
	}
	var lines strings.Builder
	for i, c := range checks {
		err := calls[i].outcome(checkTimeout)
		c.log(ctx, path, err)
		said := Remark("")
		switch {
		case err == nil:
			fmt.Fprintf(&lines, "[+]%s ok\n", c.name)
		case errors.As(err, &said):
			fmt.Fprintf(&lines, "[+]%s ok: %s\n", c.name, oneLine(string(said)))
		default:
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.name, oneLine(err.Error()))
		}
	}
	return lines.String(), failed
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
