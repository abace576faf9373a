// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// checkLimit is when the context of a check ends, and checkTimeout when it has failed all the same. It is less than the second
	// that a probe has if its timeoutSeconds is not set, so that the kubelet gets to read what hangs.
	checkLimit   = 700 * time.Millisecond
	checkTimeout = 800 * time.Millisecond
)

// check is one of the questions behind a path.
type check struct {
	name string
	ask  func(ctx context.Context) error
	*probe
}

// probe is what is known of a check from one request to the next.
type probe struct {
	mu      sync.Mutex // guards what follows
	current *asking
	failing bool // as last logged
}

// asking is a call of a check.
type asking struct {
	began time.Time
	done  chan struct{} // closed when it has returned
	err   error         // then
}

// remark is what a check says that is well all the same.
type remark string

func (r remark) Error() string { return string(r) }

// serve answers a request for a path or, with a name, for one of its checks.
func (h *health) serve(w http.ResponseWriter, r *http.Request, path string, checks []check) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	name, query := r.PathValue("name"), r.URL.Query()
	if name != "" {
		checks = slices.DeleteFunc(checks, func(c check) bool { return c.name != name })
		if len(checks) == 0 {
			http.Error(w, fmt.Sprintf("there is no check %q", name), http.StatusNotFound)
			return
		}
	}
	var unknown []string
	for _, excluded := range query["exclude"] {
		left := slices.DeleteFunc(checks, func(c check) bool { return c.name == excluded })
		if len(left) == len(checks) {
			unknown = append(unknown, excluded)
		}
		checks = left
	}
	text, failed := h.ask(r.Context(), path, checks)
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

// ask asks all of them at once, and returns a line for each.
func (h *health) ask(ctx context.Context, path string, checks []check) (text string, failed bool) {
	askings := make([]*asking, len(checks))
	for i, c := range checks {
		askings[i] = h.begin(ctx, c)
	}
	var lines strings.Builder
	for i, c := range checks {
		err := askings[i].result()
		c.log(ctx, path, err)
		said := remark("")
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

// begin calls a check, or joins a call of it that is under way, so that there is one at a time.
func (h *health) begin(ctx context.Context, c check) *asking {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return c.current
	}
	a := &asking{began: time.Now(), done: make(chan struct{}), err: errExited}
	c.current = a
	ctx = context.WithoutCancel(ctx) // others may wait for it, too
	h.asked.Go(func() {
		defer c.returned(a)
		ctx, cancel := context.WithTimeout(ctx, checkLimit)
		defer cancel()
		a.err = c.call(ctx)
	})
	return a
}

func (c *check) returned(a *asking) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(a.done)
	c.current = nil
}

// call calls the check. A panic is an error; the log has its stack.
func (c *check) call(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it has panicked: %v", p)
			logr.FromContextAsSlogLogger(ctx).Error("a health check has panicked", "check", c.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if err = c.ask(ctx); err != nil {
		_ = err.Error() // may panic, too
	}
	return err
}

// result waits until the call has returned or has had its time.
func (a *asking) result() error {
	late := time.NewTimer(time.Until(a.began.Add(checkTimeout)))
	defer late.Stop()
	select {
	case <-a.done:
		return a.err
	case <-late.C:
	}
	select {
	case <-a.done: // while others were waited for
		return a.err
	default:
		return fmt.Errorf("it has not answered for %s", time.Since(a.began).Round(time.Millisecond))
	}
}

// log says when a check fails that did not, and when it is well again.
func (c *check) log(ctx context.Context, path string, err error) {
	failing := err != nil && !errors.As(err, new(remark))
	c.mu.Lock()
	turned := failing != c.failing
	c.failing = failing
	c.mu.Unlock()
	switch log := logr.FromContextAsSlogLogger(ctx); {
	case !turned:
	case failing && path != "/readyz":
		log.Warn("a health check fails", "path", path, "check", c.name, "err", err)
	case failing:
		log.Info("not ready", "check", c.name, "err", err)
	default:
		log.Info("a health check is well again", "path", path, "check", c.name)
	}
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
