// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// host is a program that runs client-go's elector on an observed lock.
type host struct {
	*replica
	*leaderelection.Observed
	lock  *resourcelock.LeaseLock
	keeps bool          // it does not release
	lasts time.Duration // the elector's LeaseDuration; 0: the default

	mu      sync.Mutex // guards led
	led     []error    // the results of Lead
	token   term.Token
	running sync.WaitGroup
}

func newHost(t *testing.T, api *sim.Server, identity string) *host {
	t.Helper()
	h := &host{replica: &replica{api: api}}
	cfg := api.Config()
	// As resourcelock.NewFromKubeconfig sets it.
	cfg.Transport, cfg.Timeout = h.replica, 5*time.Second
	leases, err := coordinationclient.NewForConfig(cfg)
	testkit.NoError(t, err)
	h.lock = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}, Client: leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	h.Observed, err = leaderelection.Observe(h.lock, h.lock.Client, leaderelection.ObserveOptions{Hook: hook.Join(
		hook.On(func(e *hook.LeaseAcquired) {
			h.note("acquired %s", e.Lease)
			l := lease(t, api)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.token = term.Token{Lease: l.UID, ResourceVersion: l.ResourceVersion, Holder: identity}
		}),
		hook.On(func(e *hook.LeaseLost) { h.note("lost %s", e.Lease) }),
		hook.On(func(e *hook.LeaseReleased) { h.note("released %s: %v", e.Lease, e.Err != nil) }),
		hook.On(func(e *hook.LeaseHolder) { h.note("%s leads %s", e.Identity, e.Lease) }),
	)})
	testkit.NoError(t, err)
	h.lock.Client = h.Observed
	return h
}

// campaign runs client-go's elector until ctx is done or the Lease is lost. Like RunOrDie, it does
// not wait for Lead.
func (h *host) campaign(ctx context.Context, leads ...term.Lead) {
	clientgo.RunOrDie(logr.NewContext(ctx, logr.Discard()), clientgo.LeaderElectionConfig{
		Lock: h.lock, LeaseDuration: cmp.Or(h.lasts, 15*time.Second), RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: !h.keeps,
		Callbacks: clientgo.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				for _, lead := range leads {
					h.running.Go(func() {
						err := h.Lead(ctx, lead)
						h.mu.Lock()
						defer h.mu.Unlock()
						h.led = append(h.led, err)
					})
				}
			},
			OnStoppedLeading: func() {},
		},
	})
}

// start runs campaign until stop is called. ended is closed when the elector has returned.
func (h *host) start(t *testing.T, leads ...term.Lead) (stop func(), ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		h.campaign(ctx, leads...)
	}()
	return cancel, returned
}

// result waits until all calls of Lead have returned, and returns their errors.
func (h *host) result() []error {
	h.running.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.led
}

func done(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestL2_Observe_TheElectorOfTheHostMakesTheTerm: the token has the UID and version of the Lease,
// and the trust counts from when a renewal is sent (L2). The term ends when the Lease is released,
// after the work has returned (L3).
func TestL2_Observe_TheElectorOfTheHostMakesTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		slow := func(req *http.Request) (*http.Response, error) {
			resp, err := api.RoundTrip(req)
			time.Sleep(time.Second)
			return resp, err
		}
		h.line.Store(&slow)
		var leading *term.Term
		stop, ended := h.start(t, func(take, work context.Context) error {
			leading = term.FromContext(work)
			h.mu.Lock()
			testkit.Equal(t, leading.Token(), h.token)
			testkit.Equal(t, term.FromContext(take) == leading, true)
			testkit.NotEqual(t, h.token.Lease, "")
			h.mu.Unlock()
			<-take.Done()
			time.Sleep(5 * time.Second)
			ok(t, work.Err())
			ok(t, leading.Trusted())
			h.note("returns")
			return take.Err()
		})
		testkit.Pass(2*time.Minute + time.Second)
		sent := lease(t, api).Spec.RenewTime.Time
		testkit.Equal(t, leading.Until().Sub(sent).Round(time.Millisecond), seconds(13.5))
		testkit.AtMost(t, time.Since(sent), seconds(4))
		unwell(t, h, "")
		stop()
		testkit.Pass(seconds(4.9))
		testkit.Equal(t, holder(t, api), "a")
		testkit.Equal(t, done(ended), false)
		testkit.Pass(seconds(3))
		testkit.Equal(t, holder(t, api), "")
		testkit.Equal(t, done(ended), true)
		testkit.NotEqual(t, leading.Trusted(), nil)
		for _, err := range h.result() {
			ok(t, err)
		}
		h.want(t, "acquired operator", "returns", "released operator: false")
	})
}

// TestL3_Observe_AReleaseWaitsForAll: it waits for all work, but not forever (L3).
func TestL3_Observe_AReleaseWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		free := make(chan struct{})
		var lost time.Time
		stop, ended := h.start(t, untilStopped, func(_, work context.Context) error {
			<-work.Done()
			lost = time.Now()
			<-free
			return context.Cause(work)
		})
		testkit.Pass(seconds(5.5))
		sent := lease(t, api).Spec.RenewTime.Time
		stop()
		testkit.Pass(seconds(9.9))
		testkit.Equal(t, done(ended), false, "the elector has returned although something leads")
		testkit.Pass(seconds(0.1))
		testkit.Equal(t, done(ended), true, "the elector has returned")
		testkit.Equal(t, holder(t, api), "a", "the elector has returned")
		testkit.Pass(time.Minute)
		testkit.Equal(t, lost.Sub(sent).Round(time.Millisecond), seconds(12), "the work was cancelled after the last renewal")
		unwell(t, h, "was lost")
		close(free)
		if errs := h.result(); len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], leaderelection.ErrLost) {
			t.Errorf("Lead returned %v", errs)
		}
		unwell(t, h, "")
		h.want(t, "acquired operator", "released operator: true", "lost operator")
	})
}

// TestL4_Observe_ALeaseThatAnotherHoldsIsNotReleased: client-go would release it (L4).
func TestL4_Observe_ALeaseThatAnotherHoldsIsNotReleased(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *sim.Server)
		holder string
	}{
		"a rival":       {func(_ *testing.T, api *sim.Server) { give(api, "b") }, "b"},
		"a namesake":    {func(_ *testing.T, api *sim.Server) { give(api, "a") }, "a"},
		"created again": {remake, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				h := newHost(t, api, "a")
				stop, ended := h.start(t, untilStopped)
				testkit.Pass(seconds(5.5))
				c.change(t, api)
				stop()
				<-ended
				h.result()
				testkit.Equal(t, holder(t, api), c.holder, "holds the Lease")
			})
		})
	}
}

// TestObserve_TheElectorsLeaseIsShorter: a term would be trusted while another process may lead, so
// the elector is refused (L1).
func TestObserve_TheElectorsLeaseIsShorter(t *testing.T) {
	for lasts, want := range map[time.Duration][]string{
		14 * time.Second: nil,
		15 * time.Second: {"acquired operator", "released operator: false"},
		16 * time.Second: {"acquired operator", "released operator: false"},
	} {
		t.Run(lasts.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, sim.NewServer(sim.Leases), "a")
				h.lasts = lasts
				stop, ended := h.start(t, untilStopped)
				testkit.Pass(time.Minute)
				stop()
				<-ended
				h.result()
				h.want(t, want...)
			})
		})
	}
}

// TestL5_Observe_TheTermIsLost: it is lost if it is not renewed in time, and a late answer does not
// help the elector (L5).
func TestL5_Observe_TheTermIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		late := func(req *http.Request) (*http.Response, error) {
			resp, err := api.RoundTrip(req)
			time.Sleep(4 * time.Second)
			return resp, err
		}
		h.line.Store(&late)
		var lost time.Time
		var fenced error
		lead := func(_, work context.Context) error {
			<-work.Done()
			lost = time.Now()
			testkit.ErrorIs(t, context.Cause(work), leaderelection.ErrLost)
			ok(t, term.FromContext(work).Trusted())
			time.Sleep(seconds(1.5))
			fenced = term.FromContext(work).Trusted()
			return nil
		}
		give, ended := h.start(t, lead)
		defer give()
		testkit.Pass(seconds(30))
		h.cut()
		sent := lease(t, api).Spec.RenewTime.Time
		// client-go's elector will try for some seconds more.
		testkit.Pass(time.Until(sent.Add(seconds(13))))
		h.mend()
		if done(ended) {
			t.Fatal("the elector has given up before")
		}
		testkit.Pass(seconds(30))
		testkit.Equal(t, lost.Sub(sent).Round(time.Millisecond), seconds(12))
		testkit.NotEqual(t, fenced, nil)
		testkit.Equal(t, done(ended), true, "the elector goes on")
		if errs := h.result(); len(errs) != 1 || !errors.Is(errs[0], leaderelection.ErrLost) {
			t.Errorf("Lead returned %v", errs)
		}
		stop, _ := h.start(t, untilStopped) // once more
		testkit.Pass(seconds(30))
		testkit.Equal(t, holder(t, api), "a", "holds the Lease")
		stop()
		testkit.Pass(seconds(30))
		h.result()
		h.want(t, "acquired operator", "lost operator", "released operator: false", "acquired operator", "released operator: false")
	})
}

// TestL7_Observe_TheTermEndsAtOnce: it ends when the elector sees that the Lease is not ours any
// more (L7).
func TestL7_Observe_TheTermEndsAtOnce(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *sim.Server){
		"another process holds it": func(_ *testing.T, api *sim.Server) { give(api, "b") },
		"a namesake holds it":      func(_ *testing.T, api *sim.Server) { give(api, "a") },
		"it is deleted":            func(_ *testing.T, api *sim.Server) { api.Remove(sim.Leases, "default", "operator") },
		"it is created again":      remake,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				h := newHost(t, api, "a")
				var lost time.Time
				var fenced error
				stop, ended := h.start(t, func(_, work context.Context) error {
					<-work.Done()
					lost, fenced = time.Now(), term.FromContext(work).Trusted()
					return nil
				})
				testkit.Pass(seconds(5.5))
				change(t, api)
				testkit.Pass(seconds(0.6))
				testkit.Equal(t, lost.IsZero(), false, fmt.Sprintf("lost at %s", lost))
				testkit.ErrorIs(t, fenced, leaderelection.ErrLost, fmt.Sprintf("lost at %s", lost))
				testkit.Equal(t, done(ended), false, "the elector has given up before")
				writes := api.Count("update", sim.Leases) + api.Count("create", sim.Leases)
				testkit.Pass(time.Minute)
				testkit.Equal(t, api.Count("update", sim.Leases)+api.Count("create", sim.Leases), writes)
				testkit.Equal(t, done(ended), true)
				stop()
				h.result()
			})
		})
	}
}

// TestObserve_AMachineThatSlept: it has lost its term by the wall clock.
func TestObserve_AMachineThatSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		var slept atomic.Bool
		leaderelection.SetWallOf(h.Observed, func() time.Time {
			if slept.Load() {
				return time.Now().Round(0).Add(time.Hour)
			}
			return time.Now().Round(0)
		})
		stop, ended := h.start(t, func(_, work context.Context) error { <-work.Done(); return nil })
		testkit.Pass(seconds(5.5))
		slept.Store(true)
		testkit.Pass(seconds(0.6))
		stop()
		if errs := h.result(); len(errs) != 1 || !errors.Is(errs[0], leaderelection.ErrLost) {
			t.Errorf("Lead returned %v", errs)
		}
		<-ended
		h.want(t, "acquired operator", "lost operator", "released operator: false")
	})
}

// TestObserve_HandsOverToOursAndBack: the last writes are handed over in both directions (L7, L9).
// The host's elector does not know its API server, so it hands on two versions.
func TestObserve_HandsOverToOursAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newHeirs(t)
		inherited := make(chan string, 1)
		writes := func(name string) term.Lead {
			return func(take, work context.Context) error {
				inherited <- versions(fence.FromContext(work).Inherited())
				all.write(work, name)
				<-take.Done()
				return nil
			}
		}
		a := newHost(t, all.api, "a")
		stopA, _ := a.start(t, writes("one"))
		testkit.Pass(seconds(5))
		b := newReplica(t, all.api, "b")
		stopB, resultB := b.start(t, writes("two"))
		testkit.Pass(seconds(5))
		got := []string{<-inherited}
		stopA()
		testkit.Pass(0)
		got = append(got, <-inherited)
		testkit.Equal(t, lease(t, all.api).Annotations[leaderelection.WrittenAnnotation], "")
		c := newHost(t, all.api, "c")
		stopC, endedC := c.start(t, writes("three"))
		stopB()
		ok(t, resultB())
		testkit.Pass(seconds(5))
		got = append(got, <-inherited)
		stopC()
		<-endedC
		testkit.SlicesEqual(t, got, []string{"nothing", "from a: configmaps 3", "from b: configmaps 11"}, "they have inherited")
		d := newReplica(t, all.api, "d")
		stopD, resultD := d.start(t, writes("four"))
		testkit.Pass(seconds(5))
		stopD()
		ok(t, resultD())
		testkit.Equal(t, <-inherited, "from c: configmaps 11 configmaps 14")
	})
}

// TestObserve_LeadIsCalledAtOddTimes: Lead returns an error outside of a term.
func TestObserve_LeadIsCalledAtOddTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		never := func(context.Context, context.Context) error { t.Error("it leads"); return nil }
		testkit.ErrorContains(t, h.Lead(t.Context(), never), "OnStartedLeading", "before")
		stop, ended := h.start(t, untilStopped)
		testkit.Pass(seconds(5))
		ok(t, h.Lead(stopped, never))
		boom := errors.New("boom")
		testkit.ErrorIs(t, h.Lead(t.Context(), func(context.Context, context.Context) error { return boom }), boom, "meanwhile")
		stop()
		<-ended
		testkit.ErrorContains(t, h.Lead(t.Context(), never), "OnStartedLeading", "after")
		ok(t, h.Lead(stopped, never))
		h.result()
	})
}

// TestObserve_AHostThatDoesNotRelease: the hooks get no loss when it has stopped.
func TestObserve_AHostThatDoesNotRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, sim.NewServer(sim.Leases), "a")
		h.keeps = true
		stop, ended := h.start(t, untilStopped)
		testkit.Pass(seconds(5))
		stop()
		<-ended
		for _, err := range h.result() {
			ok(t, err)
		}
		testkit.Pass(time.Minute)
		h.want(t, "acquired operator")
		unwell(t, h, "")
	})
}

// TestObserve_ALockWithoutItsClient: Lead names the mistake.
func TestObserve_ALockWithoutItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		h := newHost(t, api, "a")
		leases, err := coordinationclient.NewForConfig(api.Config())
		ok(t, err)
		h.lock.Client = leases
		stop, ended := h.start(t, untilStopped)
		testkit.Pass(seconds(5))
		stop()
		<-ended
		led := h.result()
		if len(led) != 1 || led[0] == nil || !strings.Contains(led[0].Error(), "set the lock's Client to this *leaderelection.Observed") {
			t.Errorf("Lead returns %v", led)
		}
	})
}

func TestObserve_BadInput(t *testing.T) {
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "operator"}, LockConfig: resourcelock.ResourceLockConfig{Identity: "a"}, Client: coordinationclient.New(nil)}
	for want, c := range map[string]struct {
		lock   leaderelection.HostLock
		client coordinationclient.LeasesGetter
		o      leaderelection.ObserveOptions
	}{
		"the lock is nil":                                   {client: lock.Client},
		"the lock has no identity":                          {lock: &resourcelock.LeaseLock{}, client: lock.Client},
		"the client of the Leases is nil":                   {lock: lock},
		"leaderelection.ObserveOptions.LeaseDuration: 1.5s": {lock, lock.Client, leaderelection.ObserveOptions{LeaseDuration: 1500 * time.Millisecond}},
		"leaderelection.ObserveOptions.RenewDeadline: 20s, must be positive and shorter than": {lock, lock.Client, leaderelection.ObserveOptions{RenewDeadline: 20 * time.Second}},
		"leaderelection.ObserveOptions.StuckAfter: -1s":                                       {lock, lock.Client, leaderelection.ObserveOptions{StuckAfter: -time.Second}},
	} {
		if o, err := leaderelection.Observe(c.lock, c.client, c.o); o != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, o := range []leaderelection.ObserveOptions{{}, {LeaseDuration: 137 * time.Second, RenewDeadline: 107 * time.Second, RetryPeriod: 26 * time.Second}} {
		h, err := leaderelection.Observe(lock, lock.Client, o)
		ok(t, err)
		testkit.Equal(t, h.Name(), "leader-election-operator", "the check")
	}
}
