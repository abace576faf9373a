// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shardtest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/shard/shardtest"
	"github.com/setpoint-dev/setpoint/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	name     = types.NamespacedName
	function = controller.Func[name]
)

func nameOf(n int) name { return name{Namespace: "default", Name: fmt.Sprint("o", n)} }

func names(n int) (all []name) {
	for i := range n {
		all = append(all, nameOf(i))
	}
	return all
}

// fleet is a group of replicas in one bubble.
type fleet struct {
	t      *testing.T
	api    *sim.Server
	record shardtest.Recorder[name] // of the controllers "web"
	all    []*replica
}

type replica struct {
	control *controller.Controller[name]
	cut     atomic.Bool // from the API server
	stop    func()
}

type network struct {
	http.RoundTripper
	of *replica
}

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.of.cut.Load() {
		return nil, errors.New("the network is cut")
	}
	return n.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper is for client-go, which looks for connections to close.
func (n network) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// plan is what a replica does otherwise than others.
type plan struct {
	by   shard.Partitioner
	sees labels.Selector // of the objects in its cache
	runs string          // the name of its controller
}

func newFleet(t *testing.T, objects int) *fleet {
	f := &fleet{t: t, api: sim.NewServer(sim.Leases, sim.ConfigMaps)}
	t.Cleanup(f.api.Close)
	for _, o := range names(objects) {
		f.put(o)
	}
	return f
}

func (f *fleet) put(o name) {
	f.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}})
}

// start runs a replica. Each Reconcile takes 3 s.
func (f *fleet) start(member string, p plan) *replica {
	r := &replica{}
	cfg := f.api.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return network{rt, r} })
	m := manager.New(cfg, manager.Options{
		Name: "web", Logger: slog.New(slog.DiscardHandler),
		LeaderElection: &shard.Options{Election: leaderelection.Options{Lease: "web", Namespace: "default"}, Partitioner: p.by},
	})
	var slow controller.Reconciler[name] = function(func(ctx context.Context, _ name) (controller.Result, error) {
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
		return controller.Result{}, ctx.Err()
	})
	if p.runs == "" {
		slow = f.record.Reconciler(member, slow)
	}
	r.control = controller.New(cmp.Or(p.runs, "web"), slow, controller.Options{Workers: 50})
	r.control.Watch(source.Kind(cache.ForScope[*corev1.ConfigMap](m.Cache(), cache.Scope{Labels: p.sees}), handler.Self()))
	m.Add(r.control)
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	f.all = append(f.all, r)
	r.stop = func() {
		cancel()
		testkit.Equal(f.t, <-done, nil)
		r.stop = func() {}
	}
	return r
}

// check makes all keys due once, after time to settle, and checks them.
func (f *fleet) check(keys ...name) error {
	testkit.Pass(2 * time.Minute)
	f.record.Reset()
	for _, r := range f.all {
		testkit.Equal(f.t, r.control.RequeueAll(f.t.Context()), nil)
	}
	testkit.Pass(time.Minute)
	return f.record.Check(keys...)
}

func (f *fleet) end() {
	for _, r := range f.all {
		r.stop()
	}
}

func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, text := range want {
		testkit.ErrorContains(t, err, text)
	}
}

// TestP1_OneMemberReconcilesAKey, although objects come and go, watches lag, and slots move.
func TestP1_OneMemberReconcilesAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 100)
		defer f.end()
		f.api.Lag(300 * time.Millisecond)
		a := f.start("a", plan{})
		f.start("b", plan{})
		var c *replica
		random := rand.New(rand.NewPCG(1, 2))
		for at := range 400 { // 200 s
			testkit.Pass(500 * time.Millisecond)
			for range 5 {
				if o := nameOf(random.IntN(100)); !f.api.Remove(sim.ConfigMaps, o.Namespace, o.Name) {
					f.put(o)
				}
			}
			switch at {
			case 80:
				c = f.start("c", plan{})
			case 160:
				a.cut.Store(true)
			case 240:
				a.cut.Store(false)
			case 320:
				c.stop()
			}
		}
		f.all = f.all[:2]
		for _, o := range names(100) {
			f.put(o)
		}
		testkit.Equal(t, f.check(names(100)...), nil)
	})
}

// TestCheck_AKeyWithoutAMember names it, and the keys that two members reconcile.
func TestCheck_AKeyWithoutAMember(t *testing.T) {
	by := func(suffix string) shard.Partitioner {
		return shard.ByFunc("f", func(k name) string { return k.Name + suffix })
	}
	none, _ := labels.Parse("none")
	for what, c := range map[string]struct {
		a, b plan
		want []string
	}{
		"two functions of one name": {plan{by: by("")}, plan{by: by("2")}, []string{"no member reconciles default/o", "a and b reconcile default/o"}},
		"an object is not cached":   {plan{}, plan{sees: none}, []string{"no member reconciles default/o"}},
		"the other does not run it": {plan{}, plan{runs: "dns"}, []string{"no member reconciles default/o"}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 40)
				defer f.end()
				f.start("a", c.a)
				f.start("b", c.b)
				wantError(t, f.check(names(40)...), c.want...)
			})
		})
	}
}

// TestCheck_TwoMembersAtTheSameTime: a Reconcile whose context has ended does not count. Reset
// keeps the error.
func TestCheck_TwoMembersAtTheSameTime(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, c := range map[string]struct {
		over bool // the context has ended
		key  name
		ok   bool
	}{
		"the same key":             {false, nameOf(1), false},
		"a context that has ended": {true, nameOf(1), true},
		"another key":              {false, nameOf(2), true},
	} {
		ctx := t.Context()
		if c.over {
			ctx = ended
		}
		var r shardtest.Recorder[name]
		nothing := function(func(context.Context, name) (controller.Result, error) { return controller.Result{}, nil })
		b := r.Reconciler("b", nothing)
		a := r.Reconciler("a", function(func(context.Context, name) (controller.Result, error) {
			return b.Reconcile(t.Context(), nameOf(1))
		}))
		for range 2 { // the second time, no other one runs when b begins
			testkit.Equal(t, testkit.Err(a.Reconcile(ctx, c.key)), nil)
			a = b
		}
		r.Reset()
		if err := r.Check(); (err == nil) != c.ok || err != nil && err.Error() != "a and b reconcile default/o1 at the same time" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCheckBy names the keys that a function gives several slots, or none.
func TestCheckBy(t *testing.T) {
	var calls atomic.Uint64
	by := shard.ByFunc("f", func(k name) string {
		switch k {
		case nameOf(1):
			return fmt.Sprint(calls.Add(1))
		case nameOf(2):
			panic("no text")
		}
		return k.Name
	})
	err := shardtest.CheckPartitioner(by, names(4)...)
	wantError(t, err, "default/o1", "panics for default/o2")
}
