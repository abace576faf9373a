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

	"github.com/setpoint-dev/setpoint/manager"
)

// health answers the kubelet's probes.
type health struct {
	checks interface {
		Livez() []manager.Check
		Readyz() []manager.Check
	}
	calls *sync.WaitGroup // of checks

	mu          sync.Mutex // guards what follows
	live, ready map[manager.Check]*probe
}

var healthPaths = []string{"/livez", "/healthz", "/readyz"}

// ServeHTTP implements http.Handler.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	probes := h.probes("/" + path)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	query := r.URL.Query()
	if name != "" {
		probes = slices.DeleteFunc(probes, func(p *probe) bool { return p.check.Name() != name })
		if len(probes) == 0 {
			http.Error(w, fmt.Sprintf("there is no check %q", name), http.StatusNotFound)
			return
		}
	}
	var unknown []string
	for _, excluded := range query["exclude"] {
		count := len(probes)
		probes = slices.DeleteFunc(probes, func(p *probe) bool { return p.check.Name() == excluded })
		if len(probes) == count {
			unknown = append(unknown, excluded)
		}
	}
	text, failed := askAll(r.Context(), "/"+path, probes, h.calls)
	if len(unknown) > 0 {
		text += fmt.Sprintf("warn: some health checks cannot be excluded: no matches for %q\n", unknown)
	}
	if name == "" {
		verdict := " check passed\n"
		if failed {
			verdict = " check failed\n"
		}
		text += path + verdict
	}
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
	case !query.Has("verbose"):
		text = "ok"
	}
	fmt.Fprint(w, text)
}

// probes returns the state of each check of a path, and forgets checks that are gone.
func (h *health) probes(path string) (all []*probe) {
	checks, known := h.checks.Livez, &h.live
	if path == "/readyz" {
		checks, known = h.checks.Readyz, &h.ready
	}
	h.mu.Lock() // before asking, so that no older list follows a newer one
	defer h.mu.Unlock()
	now, before := checks(), *known
	*known = make(map[manager.Check]*probe, len(now))
	for _, c := range now {
		p := before[c]
		if p == nil {
			p = &probe{check: c}
		}
		(*known)[c] = p
		all = append(all, p)
	}
	return all
}

func askAll(ctx context.Context, path string, probes []*probe, all *sync.WaitGroup) (text string, failed bool) {
	calls := make([]*call, len(probes))
	for i, p := range probes {
		calls[i] = p.calls.begin(all, 0, func() error { return p.call(ctx) })
	}
	var lines strings.Builder
	for i, p := range probes {
		err := calls[i].outcome(checkTimeout)
		p.log(ctx, path, err)
		said, name := manager.Remark(""), p.check.Name()
		switch {
		case err == nil:
			fmt.Fprintf(&lines, "[+]%s ok\n", name)
		case errors.As(err, &said):
			fmt.Fprintf(&lines, "[+]%s ok: %s\n", name, oneLine(string(said)))
		default:
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: %s\n", name, oneLine(err.Error()))
		}
	}
	return lines.String(), failed
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
