// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is one elector with a connection to the API server that a test can cut, and a list of
// events.
type replica struct {
	*leaderelection.Elector
	line atomic.Pointer[func(*http.Request) (*http.Response, error)] // nil: connected
	api  *sim.Server

	mu       sync.Mutex
	events   []string
	requests []string // GET, PUT, POST or WATCH
}

// RoundTrip is the replica's connection to the API server.
func (r *replica) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	verb := req.Method
	if req.URL.Query().Get("watch") == "true" {
		verb = "WATCH"
	}
	r.requests = append(r.requests, verb)
	r.mu.Unlock()
	if line := r.line.Load(); line != nil {
		return (*line)(req)
	}
	return r.api.RoundTrip(req)
}

// cut makes every request fail.
func (r *replica) cut() {
	refuse := func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf("connection refused") }
	r.line.Store(&refuse)
}

// hang leaves every request without an answer.
func (r *replica) hang() {
	hang := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	r.line.Store(&hang)
}

func (r *replica) mend() { r.line.Store(nil) }

func (r *replica) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

// made returns the requests since its last call.
func (r *replica) made() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := strings.Join(r.requests, " ")
	r.requests = nil
	return made
}

func (r *replica) want(t *testing.T, events ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	testkit.SlicesEqual(t, r.events, events)
}

func newReplica(t *testing.T, api *sim.Server, identity string, change ...func(*leaderelection.Options)) *replica {
	t.Helper()
	r := &replica{api: api}
	cfg := api.Config()
	cfg.Transport = r
	o := leaderelection.Options{Lease: "operator", Namespace: "default", Identity: identity, Hook: hook.Join(
		hook.On(func(e *hook.LeaseAcquired) { r.note("acquired %s", e.Lease) }),
		hook.On(func(e *hook.LeaseLost) { r.note("lost %s", e.Lease) }),
		hook.On(func(e *hook.LeaseReleased) { r.note("released %s: %v", e.Lease, e.Err != nil) }),
		hook.On(func(e *hook.LeaseHolder) { r.note("%s leads %s", e.Identity, e.Lease) }),
	)}
	for _, f := range change {
		f(&o)
	}
	var err error
	r.Elector, err = leaderelection.New(cfg, o)
	testkit.NoError(t, err)
	return r
}

// start runs a replica. stop stops it. result waits for the end of Run and returns its error.
func (r *replica) start(t *testing.T, lead term.Lead) (stop func(), result func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, lead) }()
	return cancel, func() error { return <-done }
}

// lease returns the Lease as stored, or nil.
func lease(t *testing.T, api *sim.Server) *coordinationv1.Lease {
	t.Helper()
	u := api.Object(sim.Leases, "default", "operator")
	if u == nil {
		return nil
	}
	l := &coordinationv1.Lease{}
	testkit.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, l))
	return l
}

// holder returns the holder of the stored Lease, or "".
func holder(t *testing.T, api *sim.Server) string {
	t.Helper()
	l := lease(t, api)
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// give writes a Lease with a holder, renewed now.
func give(api *sim.Server, to string) { giveAt(api, to, time.Now()) }

// giveAt writes a Lease with a holder, renewed at another time, as by another process.
func giveAt(api *sim.Server, to string, at time.Time) {
	seconds, renewed := int32(15), metav1.NewMicroTime(at)
	put(api, coordinationv1.LeaseSpec{HolderIdentity: &to, LeaseDurationSeconds: &seconds, RenewTime: &renewed, AcquireTime: &renewed})
}

func put(api *sim.Server, spec coordinationv1.LeaseSpec) {
	api.Put(sim.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}, Spec: spec})
}

// edit changes the Lease's spec by hand.
func edit(t *testing.T, api *sim.Server, change func(*coordinationv1.LeaseSpec)) {
	t.Helper()
	l := lease(t, api)
	change(&l.Spec)
	put(api, l.Spec)
}

// remake deletes the Lease and creates it again with the same content.
func remake(t *testing.T, api *sim.Server) {
	t.Helper()
	l := lease(t, api)
	api.Remove(sim.Leases, "default", "operator")
	put(api, l.Spec)
}

// label changes the Lease's metadata.
func label(t *testing.T, api *sim.Server) {
	l := lease(t, api)
	l.Labels = map[string]string{"at": time.Now().Format("15-04-05.000000")}
	api.Put(sim.Leases, l)
}

// untilStopped leads until it is stopped.
func untilStopped(take, _ context.Context) error {
	<-take.Done()
	return nil
}

// isLease reports whether a request is for a Lease, with this verb.
func isLease(r *sim.Request, verb string) bool {
	return r.Verb == verb && r.Resource.Resource == sim.Leases.Name
}

func ok(t *testing.T, err error) {
	t.Helper()
	testkit.Equal(t, err, nil)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// CloseIdleConnections does nothing: there are none. Without it, client-go warns of a transport
// that it does not know.
func (r *replica) CloseIdleConnections() {}

// lines counts the lines of a log.
type lines struct {
	mu  sync.Mutex // guards all
	all strings.Builder
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// String returns the whole log.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns the number of lines of a level.
func (l *lines) count(level string) int { return strings.Count(l.String(), "level="+level+" ") }
