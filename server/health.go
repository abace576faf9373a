// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkLimit is when the context of a check ends, and checkTimeout when the check has failed. It
	// is less than a probe's default timeout of a second, so that the kubelet reads what hangs.
	checkLimit   = 700 * time.Millisecond
	checkTimeout = 800 * time.Millisecond
)

// Health answers the kubelet's probes:
//
//	/livez, /healthz  is there a reason to replace the process?
//	/readyz           may it be sent requests?
//	/livez/NAME       one check of them
//
// The answers have the form of Kubernetes' own components: 200 and "ok", or 500 and a line for each
// check. ?verbose returns the lines in any case; ?exclude=NAME leaves a check out. Unlike theirs,
// the lines say what is wrong: serve them to the kubelet, and not to the world.
type Health struct {
	// Live and Ready return the checks of /livez and /readyz. They are called for each request.
	Live, Ready func() []*Check
}

// Mount adds the paths to a server, whose Serve then waits until each call of a check has returned.
func (h *Health) Mount(s *Server) error {
	var wrong []error
	for _, path := range []string{"/livez", "/healthz", "/readyz"} {
		checks := h.Live
		if path == "/readyz" {
			checks = h.Ready
		}
		answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answerProbe(w, r, path, checks(), &s.calls) })
		wrong = append(wrong, s.Handle("GET "+path, answer), s.Handle("GET "+path+"/{name...}", answer))
	}
	return errors.Join(wrong...)
}

// answerProbe answers a request for a path or, with a name, for one of its checks.
func answerProbe(w http.ResponseWriter, r *http.Request, path string, checks []*Check, calls *sync.WaitGroup) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	checks = slices.Clone(checks)
	name, query := r.PathValue("name"), r.URL.Query()
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

// askAll makes all checks at once, and returns a line for each.
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

// Check is one named check of a Health. NewCheck makes one.
type Check struct {
	name    string
	ask     func(ctx context.Context) error
	calls   caller
	failing atomic.Bool // as last logged
}

// NewCheck makes a check. ask returns nil or a Remark if all is well. Its context ends after 700
// ms, which is less than a probe's default timeout of a second. A check fails if ask goes on longer
// or panics. It is not called again before it has returned.
func NewCheck(name string, ask func(ctx context.Context) error) *Check {
	return &Check{name: name, ask: ask}
}

// Name returns the name of the check.
func (c *Check) Name() string { return c.name }

// Remark is what a check that is well returns to add a sentence to the verbose answer.
type Remark string

// Error implements error.
func (r Remark) Error() string { return string(r) }

// call makes the check. A panic is an error; the log has its stack. Later requests may wait for the
// call, too, so it goes on when the request's context ends.
func (c *Check) call(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkLimit)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it has panicked: %v", p)
			loggerOf(ctx).Error("a health check has panicked", "check", c.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if err = c.ask(ctx); err != nil {
		_ = err.Error() // may panic, too
	}
	return err
}

// log logs that a check begins to fail, or is well again.
func (c *Check) log(ctx context.Context, path string, err error) {
	failing := err != nil && !errors.As(err, new(Remark))
	switch log := loggerOf(ctx); {
	case c.failing.Swap(failing) == failing:
	case failing && path != "/readyz":
		log.Warn("a health check fails", "path", path, "check", c.name, "err", err)
	case failing:
		log.Info("not ready", "check", c.name, "err", err)
	default:
		log.Info("a health check is well again", "path", path, "check", c.name)
	}
}
