// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

const (
	lease   = "/apis/coordination.k8s.io/v1/namespaces/default/leases/operator"
	watched = "/api/v1/configmaps?watch=true"
)

// wire forwards TCP connections. freeze makes the existing ones half-open: nothing gets through any
// more, and no end sees it.
type wire struct {
	net.Listener
	to    string
	conns sync.WaitGroup

	mu   sync.Mutex // guards the following
	open []*frozen
}

func newWire(t *testing.T, a *api) (*wire, *rest.Config) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	w := &wire{Listener: l, to: a.Listener.Addr().String()}
	w.conns.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			w.conns.Go(func() { w.forward(near) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, f := range w.open {
			f.near.Close()
			f.far.Close()
			f.freeze()
		}
		w.conns.Wait()
	})
	cfg := a.config()
	cfg.Host = "https://" + l.Addr().String()
	return w, cfg
}

type frozen struct {
	near, far net.Conn
	freeze    func()
	done      <-chan struct{}
}

func (w *wire) forward(near net.Conn) {
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		near.Close()
		return
	}
	ctx, freeze := context.WithCancel(context.Background())
	f := &frozen{near: near, far: far, freeze: freeze, done: ctx.Done()}
	w.mu.Lock()
	w.open = append(w.open, f)
	w.mu.Unlock()
	w.conns.Go(func() { f.copy(near, far) })
	f.copy(far, near)
}

func (f *frozen) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-f.done:
			return // both sockets stay open
		default:
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			to.Close()
			return
		}
	}
}

func (w *wire) freezeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.open {
		f.freeze()
	}
}

// elector makes an elector over the connections of a client. It does not run.
func elector(t *testing.T, c *client.Client, deadline time.Duration) {
	t.Helper()
	_, err := leaderelection.New(c.Config(), leaderelection.Options{
		Lease: "operator", Namespace: "default", LeaseDuration: 2 * deadline, RenewDeadline: deadline,
	})
	testkit.NoError(t, err)
}

// observed wraps the client of a host's lock, over the connections of a client.
func observed(t *testing.T, c *client.Client, deadline time.Duration) {
	t.Helper()
	leases, err := coordinationclient.NewForConfig(c.Config())
	testkit.NoError(t, err)
	_, err = leaderelection.Observe(hostLock{}, leases, leaderelection.ObserveOptions{
		LeaseDuration: 2 * deadline, RenewDeadline: deadline,
	})
	testkit.NoError(t, err)
}

type hostLock struct{}

func (hostLock) Identity() string { return "host" }
func (hostLock) Describe() string { return "default/operator" }

func TestL3_ALeaseRequestThatTimesOutClosesItsConnection(t *testing.T) {
	a := serve(t, 100, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	w, cfg := newWire(t, a)
	rt, _ := connect(t, cfg)
	renew := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := send(ctx, rt, http.MethodPut, cfg.Host+lease)
		return err
	}
	testkit.NoError(t, renew(time.Minute))
	w.freezeAll()
	if err := renew(2 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("over a half-open connection: %v", err)
	}
	testkit.Equal(t, renew(time.Minute), nil, "the next attempt did not dial")
}

// client-go's elector gives one attempt the whole RenewDeadline.
func TestL3_PingsLeaveTimeForAnotherAttempt(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *client.Client, time.Duration){"New": elector, "Observe": observed} {
		t.Run(name, func(t *testing.T) { attemptTwice(t, begin) })
	}
}

func attemptTwice(t *testing.T, begin func(*testing.T, *client.Client, time.Duration)) {
	const deadline = 6 * time.Second
	a := serve(t, 100, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	w, cfg := newWire(t, a)
	rt, c := connect(t, cfg)
	elector(t, c, time.Minute)
	begin(t, c, deadline)
	ctx, cancel := context.WithTimeout(t.Context(), 3*deadline)
	defer cancel()
	testkit.NoError(t, testkit.Err(send(ctx, rt, http.MethodPut, cfg.Host+lease)))
	w.freezeAll()
	if _, err := send(ctx, rt, http.MethodPut, cfg.Host+lease); err == nil || ctx.Err() != nil {
		t.Fatalf("the pings did not end the request: %v", err)
	}
	testkit.Equal(t, testkit.Err(send(ctx, rt, http.MethodPut, cfg.Host+lease)), nil, "the next attempt did not dial")
}

func TestPingsEndAWatchWithoutAPeer(t *testing.T) {
	begun := make(chan struct{}, 2)
	a := serve(t, 100, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusOK)
		rw.(http.Flusher).Flush() //nolint:forcetypeassert // of the standard library
		begun <- struct{}{}
		<-r.Context().Done()
	})
	w, cfg := newWire(t, a)
	rt, c := connect(t, cfg)
	elector(t, c, 2*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := send(ctx, rt, http.MethodGet, cfg.Host+watched)
		ended <- err
	}()
	began := func() {
		t.Helper()
		select {
		case <-begun:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	began()
	w.freezeAll()
	if err := <-ended; err == nil || ctx.Err() != nil {
		t.Fatalf("the pings did not end the watch: %v", err)
	}
	go func() {
		_, err := send(ctx, rt, http.MethodGet, cfg.Host+watched)
		ended <- err
	}()
	began() // over a new connection
	cancel()
	<-ended
}
