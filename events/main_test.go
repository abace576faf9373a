// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var resource = sim.Resource{Group: "events.k8s.io", Version: "v1", Kind: "Event", Name: "events", Namespaced: true}

// desk is a recorder with an API server in memory.
type desk struct {
	*events.Recorder
	t      *testing.T
	ctx    context.Context //nolint:containedctx // of one test
	api    *sim.Server
	line   *lossy
	client *client.Client
	log    bytes.Buffer

	options events.Options // of the next recorder

	mu      sync.Mutex // guards what follows
	sent    int
	failed  int
	dropped map[string]int // by reason
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, api: sim.NewServer(resource), dropped: map[string]int{}}
	d.line = &lossy{RoundTripper: d.api}
	d.ctx = logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.NewTextHandler(&d.log, nil)))
	var err error
	d.client, err = client.New(&rest.Config{Host: sim.Host, Transport: d.line, QPS: -1}, client.Options{RequireTerm: true})
	testkit.NoError(t, err)
	t.Cleanup(d.client.Close)
	d.restart()
	return d
}

// restart replaces the recorder by one of another process of the program.
func (d *desk) restart() {
	o := d.options
	o.Name, o.Instance, o.Hook = "website-operator", "pod-1", hook.Join(
		hook.On(func(e *hook.EventSent) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.sent += e.Events
		}),
		hook.On(func(*hook.EventFailed) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.failed++
		}),
		hook.On(func(e *hook.EventDropped) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.dropped[e.Why] += e.Events
		}),
	)
	d.Recorder = events.New(d.client, o)
}

// run runs the recorder until stop is called. stop does not close it.
func (d *desk) run() (stop func()) {
	ctx, cancel := context.WithCancel(d.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		testkit.Equal(d.t, d.Run(ctx), nil)
	})
	return func() { cancel(); running.Wait() }
}

// close closes the recorder with an hour's time.
func (d *desk) close() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.ctx, time.Hour)
	defer cancel()
	testkit.Equal(d.t, d.Close(ctx), nil)
}

// fail records an event about obj.
func (d *desk) fail(obj metav1.Object, note string) {
	d.Eventf(d.ctx, obj.(*corev1.ConfigMap), events.Warning, "Failed", "Apply", "%s", note)
}

// list returns all Events.
func (d *desk) list() []eventsv1.Event {
	d.t.Helper()
	c, err := eventsclient.NewForConfig(d.api.Config())
	testkit.NoError(d.t, err)
	all, err := c.Events("").List(d.ctx, metav1.ListOptions{})
	testkit.NoError(d.t, err)
	return all.Items
}

func count(e *eventsv1.Event) int {
	if e.Series == nil {
		return 1
	}
	return int(e.Series.Count)
}

// shown returns the number of calls that all Events count.
func (d *desk) shown() (calls int) {
	d.t.Helper()
	for _, e := range d.list() {
		calls += count(&e)
	}
	return calls
}

// requests is the number of requests that write.
func (d *desk) requests() int {
	return d.api.Count("create", resource) + d.api.Count("patch", resource)
}

func (d *desk) wantDropped(why string, calls int) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dropped[why] != calls || calls > 0 && len(d.dropped) != 1 {
		d.t.Errorf("dropped: %v, want %d because: %s", d.dropped, calls, why)
	}
}

func (d *desk) wantLog(times int, text string) {
	d.t.Helper()
	testkit.Count(d.t, d.log.String(), text, times)
}

// configMap returns an object.
func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)}}
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newDesk(t)) })
}

// lossy is a transport that loses answers.
type lossy struct {
	http.RoundTripper

	loses func(*http.Request) bool // whether the answer is lost; nil: none
}

// CloseIdleConnections keeps client-go from a warning.
func (l *lossy) CloseIdleConnections() {}

// RoundTrip implements http.RoundTripper.
func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && l.loses != nil && l.loses(r) {
		_ = resp.Body.Close()
		return nil, errors.New("the answer is lost")
	}
	return resp, err
}

func note(i int) string { return fmt.Sprintf("attempt %d failed", i) }
