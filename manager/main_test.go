// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Aliases, because variables named server hide the package.
type (
	serverOptions = server.Options
	handlers      = server.Server
)

var (
	listenOn   = server.Listen
	addServer  = server.Add
	addHealth  = server.AddHealth
	addMetrics = server.AddMetrics
)

var silent = slog.New(slog.DiscardHandler)

// line is a transport that counts the calls of CloseIdleConnections.
type line struct {
	http.RoundTripper
	closed atomic.Int32
}

func (l *line) CloseIdleConnections() { l.closed.Add(1) }

func config(to http.RoundTripper) *rest.Config {
	return &rest.Config{Host: sim.Host, Transport: &line{RoundTripper: to}, QPS: -1}
}

func newManager(api http.RoundTripper, change func(*manager.Options)) *manager.Manager {
	o := manager.Options{Name: "test", Logger: silent}
	if change != nil {
		change(&o)
	}
	return manager.New(config(api), o)
}

func elected(o *manager.Options) {
	o.LeaderElection = &leaderelection.Options{Lease: "operator", Namespace: "default"}
}

// start runs a manager. stop begins its stop. result waits for Run and returns its error.
func start(t *testing.T, m *manager.Manager) (stop func(), result func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return cancel, func() error { return <-done }
}

func ok(t *testing.T, err error) {
	t.Helper()
	testkit.Equal(t, err, nil)
}

// diary records events in order.
type diary struct {
	mu     sync.Mutex
	events []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, fmt.Sprintf(format, args...))
}

func (d *diary) want(t *testing.T, events ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	testkit.SlicesEqual(t, d.events, events, "what happened")
}

// until returns a function for a manager. It records its start and end, and takes some time to end.
func (d *diary) until(name string, takes time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		d.note("%s starts", name)
		<-ctx.Done()
		<-time.After(takes)
		d.note("%s ends", name)
		return ctx.Err()
	}
}

// fakeController records calls.
type fakeController struct {
	name     string
	diary    *diary
	wrong    error
	synced   chan struct{}
	required bool // RequireKinds
	warm     func(context.Context) error
	lead     func(take, work context.Context) error
}

// newFake makes a controller that is synced.
func newFake(name string, d *diary) *fakeController {
	f := &fakeController{name: name, diary: d, synced: make(chan struct{})}
	close(f.synced)
	return f
}

func (f *fakeController) Name() string            { return f.name }
func (f *fakeController) Validate() error         { return f.wrong }
func (f *fakeController) Synced() <-chan struct{} { return f.synced }

func (f *fakeController) Warm(ctx context.Context) error {
	if f.warm != nil {
		return f.warm(ctx)
	}
	return f.diary.until("warm "+f.name, 0)(ctx)
}

func (f *fakeController) Lead(take, work context.Context) error {
	if f.lead != nil {
		return f.lead(take, work)
	}
	return f.diary.until("lead "+f.name, 0)(take)
}

func (f *fakeController) Report() controller.Report {
	return controller.Report{Name: f.name, RequireKinds: f.required}
}

func (f *fakeController) WaitIdle(context.Context) (i controller.Idle, err error) { return i, nil }
func (f *fakeController) Default(controller.Options)                              {}
func (f *fakeController) AwaitWrites(context.Context) error                       { return nil }
func (f *fakeController) Failing() []controller.FailedKey                         { return nil }
func (f *fakeController) Keys() iter.Seq[controller.KeySummary]                   { return nil }
func (f *fakeController) MarshalJSON() ([]byte, error)                            { return []byte("{}"), nil }

// configMaps adds a controller over all ConfigMaps.
func configMaps(m *manager.Manager, name string, reconcile controller.Func[types.NamespacedName]) {
	maps := cache.For[*corev1.ConfigMap](m.Cache())
	c := controller.New(name, reconcile, controller.Options{})
	c.Watch(source.Kind(maps, handler.Self()))
	m.Add(c)
}

func put(api *sim.Server, name string) {
	api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
}

func isReady(m *manager.Manager) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return m.WaitReady(ended) == nil
}

func newAPI() *sim.Server {
	return sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
}

func holder(api *sim.Server) string {
	l := api.Object(sim.Leases, "default", "operator")
	if l == nil {
		return ""
	}
	spec, _ := l.Object["spec"].(map[string]any)
	who, _ := spec["holderIdentity"].(string)
	return who
}
