// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// tangle is a manager with random trouble, which is stopped at a random moment.
type tangle struct {
	t       *testing.T
	r       *rand.Rand
	api     *sim.Server
	manager *manager.Manager
	grace   time.Duration
	free    chan struct{} // releases stubborn functions
	stop    func()
	stopAt  int64 // number of the request to stop at; 0: none

	requests atomic.Int64

	mu       sync.Mutex // guards the fields below
	trouble  func(*sim.Request) (*http.Response, error)
	running  map[string]int // running calls, by name
	stuck    bool           // something ignores its context
	failed   bool           // something has panicked, exited or failed
	takesFor time.Duration  // time to stop
}

// troubles are faults of the API server.
var troubles = []func(*sim.Request) (*http.Response, error){
	nil, nil,
	func(r *sim.Request) (*http.Response, error) { return r.Refuse() },
	func(r *sim.Request) (*http.Response, error) { return r.Hang() },
	func(r *sim.Request) (*http.Response, error) {
		return r.Fail(http.StatusInternalServerError, "boom")
	},
	func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusTooManyRequests, "later") },
	func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") },
	func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource == "leases" {
			return r.Hang()
		}
		return nil, nil
	},
	func(r *sim.Request) (*http.Response, error) {
		if r.Resource.Resource != "leases" {
			return r.Refuse()
		}
		return nil, nil
	},
}

func newTangle(t *testing.T, seed uint64) *tangle {
	t.Helper()
	x := &tangle{t: t, r: rand.New(rand.NewPCG(seed, 3)), api: newAPI(), free: make(chan struct{}), running: map[string]int{}}
	x.grace = time.Duration(1+x.r.IntN(25)) * time.Second
	for i := range 3 {
		put(x.api, fmt.Sprint("m", i))
	}
	x.manager = newManager(x.api, func(o *manager.Options) {
		o.Grace = x.grace
		if x.r.IntN(3) > 0 {
			elected(o)
		}
	})
	x.api.Intercept(x.intercept)
	if x.r.IntN(2) == 0 {
		x.stopAt = 1 + x.r.Int64N(40)
	}
	if x.r.IntN(4) == 0 {
		x.trouble = troubles[x.r.IntN(len(troubles))]
	}
	leases := []*manager.Lease{nil, nil}
	if x.r.IntN(3) == 0 {
		leases = append(leases, x.manager.AddLease(leaderelection.Options{Lease: "another", Namespace: "default"}))
	}
	for i := range x.r.IntN(4) {
		c := x.controller(fmt.Sprint("c", i))
		if l := leases[x.r.IntN(len(leases))]; l != nil {
			l.Add(c)
		} else {
			x.manager.Add(c)
		}
	}
	for i := range x.r.IntN(3) {
		x.manager.AddEverywhere(fmt.Sprint("e", i), x.function(fmt.Sprint("e", i)))
	}
	for i := range x.r.IntN(3) {
		x.manager.AddLeaderOnly(fmt.Sprint("l", i), x.function(fmt.Sprint("l", i)))
	}
	return x
}

func (x *tangle) intercept(r *sim.Request) (*http.Response, error) {
	if x.requests.Add(1) == x.stopAt {
		x.stop()
	}
	x.mu.Lock()
	trouble := x.trouble
	x.mu.Unlock()
	if trouble == nil {
		return nil, nil
	}
	answer, err := trouble(r)
	return answer, err
}

func (x *tangle) set(trouble func(*sim.Request) (*http.Response, error)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trouble = trouble
}

// sticks records something that ignores its context until it is released.
func (x *tangle) sticks() {
	x.mu.Lock()
	x.stuck = true
	x.mu.Unlock()
	stubborn(x.free)
}

// runs records that something runs, until the returned function is called.
func (x *tangle) runs(name string) (ended func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running[name]++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.running[name]--
	}
}

func (x *tangle) fails() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failed = true
}

func (x *tangle) takes(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.takesFor = max(x.takesFor, d)
}

// function returns a polite, slow, stubborn or failing function. Trouble is rare.
func (x *tangle) function(name string) func(ctx context.Context) error {
	kind, when := x.r.IntN(16), time.Duration(x.r.IntN(120))*time.Second
	slowness := time.Duration(x.r.Int64N(int64(x.grace)))
	wait := func(ctx context.Context) bool {
		select {
		case <-time.After(when):
			return true
		case <-ctx.Done():
			return false
		}
	}
	return func(ctx context.Context) error {
		defer x.runs(name)()
		switch kind {
		case 0:
			x.sticks()
		case 1:
			<-ctx.Done()
			x.takes(slowness)
			time.Sleep(slowness)
		case 2:
			if wait(ctx) {
				x.fails()
				panic("a panic of " + name)
			}
		case 3:
			if wait(ctx) {
				x.fails()
				return errors.New("a failure of " + name)
			}
		case 4:
			if wait(ctx) {
				x.fails()
				runtime.Goexit()
			}
		case 5:
			return nil
		case 6: // panics at the stop
			<-ctx.Done()
			x.fails()
			panic("a panic of " + name)
		default:
			<-ctx.Done()
		}
		return ctx.Err()
	}
}

// controller returns a controller whose Reconcile is quick, slow, long but polite, or stubborn.
func (x *tangle) controller(name string) *controller.Controller[types.NamespacedName] {
	kind := x.r.IntN(10)
	c := controller.New(name, controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
		defer x.runs(fmt.Sprintf("controller %q", name))()
		switch kind {
		case 0:
			x.sticks()
		case 1: // until its context ends, after the grace time
			x.takes(x.grace)
			<-ctx.Done()
			return controller.Result{}, ctx.Err()
		case 2:
			x.takes(5 * time.Second)
			time.Sleep(5 * time.Second)
		case 3:
			panic("a panic in Reconcile")
		case 4:
			return controller.Result{RequeueAfter: time.Second}, nil
		case 5:
			return controller.Result{}, errors.New("boom")
		}
		return controller.Result{}, nil
	}), controller.Options{Logger: silent})
	kinds := x.r.IntN(3)
	if kinds != 1 {
		c.Watch(source.Kind(cache.For[*corev1.ConfigMap](x.manager.Cache()), handler.Self()))
	}
	if kinds != 0 {
		c.Watch(source.Kind(cache.For[*corev1.Secret](x.manager.Cache()), handler.Self()))
	}
	return c
}

// meddle makes random changes while the manager runs, until ctx ends.
func (x *tangle) meddle(ctx context.Context, r *rand.Rand) {
	var added []*controller.Controller[types.NamespacedName]
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-time.After(time.Duration(r.Int64N(int64(20 * time.Second)))):
		case <-ctx.Done():
			return
		}
		switch r.IntN(8) {
		case 0, 1:
			x.set(troubles[r.IntN(len(troubles))])
		case 2:
			x.set(nil)
		case 3:
			x.api.CutWatches()
		case 4:
			put(x.api, fmt.Sprint("m", r.IntN(20)))
		case 5: // another holder takes the Lease
			if l := x.api.Object(sim.Leases, "default", "operator"); l != nil {
				l.Object["spec"].(map[string]any)["holderIdentity"] = "a thief"
				x.api.Put(sim.Leases, l)
			}
		case 6:
			c := x.controller(fmt.Sprint("late", i))
			added = append(added, c)
			x.manager.Add(c)
		case 7:
			if len(added) > 0 {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(10))*time.Second)
				_ = x.manager.Remove(ctx, added[0]) // may time out
				cancel()
				added = added[1:]
			}
		}
	}
}

// run runs the manager, stops it and checks the outcome.
func (x *tangle) run() {
	t := x.t
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex // guards the fields below
	var stopped time.Time
	var well bool // the API server worked at the start of the stop
	x.stop = func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped.IsZero() {
			stopped = time.Now()
			x.mu.Lock()
			well = x.trouble == nil
			x.mu.Unlock()
		}
		cancel()
	}
	began := time.Now()
	result := make(chan error, 1)
	go func() { result <- x.manager.Run(ctx) }()
	meddling := rand.New(rand.NewPCG(x.r.Uint64(), 1))
	var others sync.WaitGroup
	x.r = rand.New(rand.NewPCG(x.r.Uint64(), 2)) // only for the meddler
	timer := time.AfterFunc(time.Duration(meddling.Int64N(int64(4*time.Minute))), x.stop)
	others.Go(func() { x.meddle(ctx, meddling) })
	err := <-result
	ended := time.Now()
	mu.Lock()
	byItself := stopped.IsZero()
	if byItself {
		stopped = began // the time of the failure is unknown
	}
	mu.Unlock()
	timer.Stop()
	cancel()
	x.mu.Lock()
	stuck, failed, takes, running := x.stuck, x.failed, x.takesFor, maps.Clone(x.running)
	x.mu.Unlock()
	took := ended.Sub(stopped)
	switch {
	case byItself && !failed && !stuck && takes == 0:
		t.Errorf("Run has ended by itself: %v", err)
	case byItself:
	case took > x.grace+3*time.Second:
		t.Errorf("it took %s to stop, with a grace time of %s:\n%v", took, x.grace, err)
	// 2 s is the limit for a release without an answer.
	case !stuck && !failed && takes == 0 && took > 2*time.Second,
		!stuck && !failed && takes == 0 && well && took > time.Second:
		t.Errorf("it took %s to stop, although nothing takes long:\n%v", took, err)
	}
	if !stuck && !failed && takes == 0 && err != nil && !byItself {
		t.Errorf("nothing is wrong, but Run returned %v", err)
	}
	for name, n := range running {
		named := err != nil && strings.Contains(err.Error(), name+" has not stopped in time")
		switch {
		case n > 0 && !named:
			t.Errorf("%s still runs, which the error does not say:\n%v", name, err)
		// A controller also ends its sources.
		case n == 0 && named && !strings.HasPrefix(name, "controller "):
			t.Errorf("%s has stopped, but the error names it as running:\n%v", name, err)
		}
	}
	testkit.AtMost(t, x.requests.Load(), 20_000)
	close(x.free)
	others.Wait()
	testkit.Pass(time.Minute)
	testkit.Equal(t, x.api.Watches(), 0)
}

func TestM3_StopsAtRandom(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newTangle(t, seed).run() })
		})
	}
}
