// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
)

// replica is an operator process, which is started again when it ends.
type replica struct {
	id      string
	plane   plane
	cfg     *rest.Config // of its clients
	plugin  *plugin
	log     *lines
	births  *births
	mu      sync.Mutex // guards what follows
	stop    context.CancelFunc
	manager *manager.Manager
}

func newReplica(id string, p plane, log *lines, b *births) *replica {
	return &replica{id: id, plane: p, cfg: p.config(), plugin: &plugin{}, log: log, births: b}
}

// run starts the operator again and again until ctx ends.
func (r *replica) run(ctx context.Context) {
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		cfg := rest.CopyConfig(r.cfg)
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &hanging{next, r.plugin} })
		m := manager.New(cfg, manager.Options{
			Name: "mix", Scheme: newScheme(), Logger: slog.New(&logHandler{lines: r.log, replica: r.id}),
			Cache: cache.Options{Namespaces: cache.NewSet(namespace), QuietLimit: r.plane.quietLimit()},
			LeaderElection: &leaderelection.Options{
				Namespace: namespace, Lease: "mix", Identity: r.id, LeaseDuration: r.plane.leaseDuration(),
			},
		})
		addOperator(m, r.births)
		r.mu.Lock()
		r.stop, r.manager = stop, m
		r.mu.Unlock()
		_ = m.Run(running) // a lost term ends a process; another one follows
		stop()
	}
}

// restart ends the process.
func (r *replica) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop()
}

// process returns the running one, and whether its caches are synced.
func (r *replica) process() (m *manager.Manager, synced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.manager == nil {
		return nil, false
	}
	behind := func(i hook.InformerState) bool { return i.Phase != hook.Synced }
	all := r.manager.Cache().States()
	return r.manager, len(all) > 0 && !slices.ContainsFunc(all, behind)
}

// plugin can hang, like an exec plugin: it ignores the contexts of requests.
type plugin struct {
	mu   sync.Mutex // guards what follows
	gate chan struct{}
	hits int
}

func (p *plugin) hang() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.gate = gate
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		close(gate)
		p.gate = nil
	}
}

func (p *plugin) wait() {
	p.mu.Lock()
	gate := p.gate
	if gate != nil {
		p.hits++
	}
	p.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (p *plugin) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

type hanging struct {
	next   http.RoundTripper
	plugin *plugin
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	h.plugin.wait()
	return h.next.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.
func (h *hanging) CloseIdleConnections() {
	if c, ok := h.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// line is a log line of a replica, without what differs from time to time.
type line struct{ replica, text string }

// lines counts the warnings and errors of the replicas.
type lines struct {
	mu    sync.Mutex // guards count
	count map[line]int
}

// has reports whether a replica has logged a line since the last take.
func (l *lines) has(replica, part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for of := range l.count {
		if of.replica == replica && strings.Contains(of.text, part) {
			return true
		}
	}
	return false
}

// take returns the counts since the last call.
func (l *lines) take() map[line]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.count
	l.count = map[line]int{}
	return last
}

// logHandler is a replica's.
type logHandler struct {
	lines   *lines
	replica string
	attrs   []slog.Attr
}

func (h *logHandler) Enabled(_ context.Context, at slog.Level) bool { return at >= slog.LevelWarn }
func (h *logHandler) WithGroup(string) slog.Handler                 { return h }

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.lines, h.replica, slices.Concat(h.attrs, attrs)}
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	add := func(a slog.Attr) bool {
		if a.Key == "source" || a.Key == "kind" || a.Key == "scope" || a.Key == "object" {
			text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	h.lines.count[line{h.replica, text}]++
	return nil
}
