// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// asReplica in the environment has the orders of a replica. It makes this program one.
const asReplica = "SETPOINT_SHARDED_REPLICA"

func TestMain(m *testing.M) {
	if text := os.Getenv(asReplica); text != "" {
		os.Exit(replica(text))
	}
	goleak.VerifyTestMain(m)
}

type orders struct {
	Host, Token string
	CA          []byte
	Identity    string
	Lease       time.Duration
	Workers     int
	OneLeader   bool
}

// replica runs the operator as a process of its own, until SIGTERM or until the test is gone.
func replica(text string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphaned)
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetSlogLogger(log)
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		cfg := &rest.Config{Host: o.Host, BearerToken: o.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: o.CA}}
		err = operator(cfg, o.options(log)).Run(ctx)
	}
	if err != nil {
		log.Error("ended", "err", err)
		return 1
	}
	return 0
}

const exitOrphaned = 3

// Lines of a replica's standard output.
const (
	isLost    = "lost"    // the process lost its Lease without a stop
	isRefused = "refused" // the fence refused a request
)

func (o *orders) options(log *slog.Logger) manager.Options {
	lease := leaderelection.Options{
		Lease: name, Namespace: namespace, Identity: o.Identity, LeaseDuration: o.Lease,
		Hook: hook.On(func(*hook.LeaseLost) { fmt.Println(isLost) }),
	}
	m := manager.Options{
		Logger: log, Grace: 5 * time.Second, ControllerDefaults: controller.Options{Workers: o.Workers},
		LeaderElection: lease,
		Hook: hook.On(func(r *hook.APIRequest) {
			if errors.Is(r.Err, term.ErrFenced) {
				fmt.Println(isRefused)
			}
		}),
	}
	if !o.OneLeader {
		m.LeaderElection = shard.Options{Election: lease}
	}
	return m
}

// member is a replica: a process, and after its end the next one.
type member struct {
	name string
	cfg  *rest.Config // through the proxy
	runs int

	*process
}

type process struct {
	identity string // unique for each start
	cmd      *exec.Cmd
	stdin    io.Closer
	log      tail
	ended    chan struct{}
}

// tail keeps the end of a log.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = slices.Clone(t.text[max(0, len(t.text)-4000):])
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// fleet is a control plane with replicas, and the history of their writes.
type fleet struct {
	*history

	orders   // of each replica
	cluster  *envtest.Cluster
	proxy    *fault.Proxy
	sites    *client.Handle[*corev1.ConfigMap]
	leases   *rest.RESTClient
	members  []*member
	programs testkit.Replicas
	running  sync.WaitGroup // goroutines of the fleet
	failed   context.CancelCauseFunc

	refused int // requests, by the fence; guarded by the history's mutex, as what follows
	lost    int // Leases that were lost without a fault
	served  []sample
	stories []string
}

// newFleet starts a control plane with a proxy, and the watches of the history. The context ends
// with the test, or when something fails.
func newFleet(t *testing.T, o orders) (*fleet, context.Context) {
	ctx, failed := context.WithCancelCause(t.Context())
	f := &fleet{history: newHistory(), orders: o, failed: failed}
	t.Cleanup(func() {
		failed(nil)
		f.running.Wait()
	})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	f.cluster, err = envtest.Start(ctx, envtest.Options{})
	ok(err)
	t.Cleanup(func() { ok(f.cluster.Stop()) })
	f.proxy, err = fault.Start(ctx, f.cluster.Config(), fault.Options{LogSize: 1})
	ok(err)
	t.Cleanup(f.proxy.Stop)
	direct, err := client.New(f.cluster.Config(), client.Options{FieldOwner: "test"})
	ok(err)
	t.Cleanup(direct.Close)
	f.sites = client.For[*corev1.ConfigMap](direct)
	core, err := restFor(f.cluster.Config(), corev1.SchemeGroupVersion)
	ok(err)
	var begin corev1.ConfigMapList
	ok(core.Get().Namespace(namespace).Resource("configmaps").Do(ctx).Into(&begin))
	f.leases, err = restFor(f.cluster.Config(), coordinationv1.SchemeGroupVersion)
	ok(err)
	for resource, c := range map[string]*rest.RESTClient{"configmaps": core, "leases": f.leases} {
		f.running.Go(func() {
			if err := f.watch(ctx, c, resource, begin.ResourceVersion); ctx.Err() == nil {
				failed(fmt.Errorf("the watch of %s has ended: %w", resource, err))
			}
		})
	}
	return f, ctx
}

// add adds a member and starts it.
func (f *fleet) add(name string) (*member, error) {
	cfg, err := f.proxy.Config()
	if err != nil {
		return nil, err
	}
	m := &member{name: name, cfg: cfg}
	f.members = append(f.members, m)
	return m, f.start(m)
}

func (f *fleet) start(m *member) error {
	m.runs++
	o := f.orders
	o.Host, o.Token, o.CA = m.cfg.Host, m.cfg.BearerToken, m.cfg.CAData
	o.Identity = fmt.Sprintf("%s.%d", m.name, m.runs)
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	program, err := f.programs.Executable()
	if err != nil {
		return err
	}
	p := &process{identity: o.Identity, cmd: exec.Command(program), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asReplica+"="+string(text))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see e2e/ha
	p.cmd.Stderr = &p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return err
	}
	m.process = p
	f.running.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.heard(p, lines.Text())
		}
		_ = p.cmd.Wait() // the log has the reason
		close(p.ended)
	})
	return nil
}

func (f *fleet) heard(p *process, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch _, known := f.judge.harmed[f.judge.lives[p.identity]]; {
	case line == isRefused:
		f.refused++
	case line == isLost && !known:
		f.lost++
		f.judge.harm(p.identity, 0)
	}
}

// restart waits for the end of a process, and starts the next one.
func (f *fleet) restart(m *member) error {
	<-m.ended
	return f.start(m)
}

// remove stops a member and forgets it.
func (f *fleet) remove(m *member) error {
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
	err := m.cmd.Process.Signal(syscall.SIGTERM)
	<-m.ended
	return err
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a suspended process cannot end
	_ = p.cmd.Process.Kill()
	_ = p.stdin.Close()
	<-p.ended
}

// stop kills all replicas.
func (f *fleet) stop() {
	for _, m := range f.members {
		if m.process != nil {
			m.kill()
		}
	}
}

// create creates a site.
func (f *fleet) create(ctx context.Context, name string) error {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: site}, Data: map[string]string{"text": "0"}}
	_, err := f.sites.Create(ctx, o)
	return err
}

// change changes the text of a site.
func (f *fleet) change(ctx context.Context, name string, text int) error {
	patch := fmt.Appendf(nil, `{"data":{"text":"%d"}}`, text)
	_, err := f.sites.Patch(ctx, types.NamespacedName{Namespace: namespace, Name: name}, types.MergePatchType, patch)
	return err
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
