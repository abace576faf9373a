// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// unwell fails unless the Check returns an error with this text. Without text, the Check must
// return nil.
func unwell(t *testing.T, e interface{ Check(*http.Request) error }, want string) {
	t.Helper()
	switch err := e.Check(nil); {
	case want == "" && err != nil:
		t.Errorf("the check says %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("the check says %v, want %q", err, want)
	}
}

// staying returns a replica with Stay.
func staying(t *testing.T, api *sim.Server, change func(*leaderelection.Options)) *replica {
	t.Helper()
	r := &replica{api: api}
	cfg := api.Config()
	cfg.Transport = r
	o := leaderelection.Options{Lease: "operator", Namespace: "default", Identity: "a", Stay: true}
	change(&o)
	var err error
	r.Elector, err = leaderelection.New(cfg, o)
	testkit.NoError(t, err)
	return r
}

// TestL5_WorkThatStaysIsWaitedFor: with Stay, Run neither returns nor campaigns, and the Check
// fails until the work has stopped.
func TestL5_WorkThatStaysIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := staying(t, api, func(*leaderelection.Options) {})
		free, terms := make(chan struct{}), 0
		stop, result := a.start(t, func(take, work context.Context) error {
			if terms++; terms > 1 {
				return untilStopped(take, work)
			}
			<-free
			return nil
		})
		testkit.Pass(seconds(5.5)) // renewed at 4
		unwell(t, a, "")
		a.cut()
		testkit.Pass(seconds(30)) // lost at 16, over at 19
		unwell(t, a, "")
		a.mend()
		a.made()
		testkit.Pass(seconds(0.6))
		unwell(t, a, "the Lease default/operator was lost 20s ago, and the work under it has not stopped")
		testkit.Pass(time.Minute)
		testkit.Equal(t, a.made(), "", "while its work goes on, it makes")
		close(free)
		testkit.Pass(0)
		unwell(t, a, "")
		testkit.Pass(time.Minute)
		unwell(t, a, "")
		stop()
		ok(t, result())
		testkit.Equal(t, terms, 2)
	})
}

// TestCheckAfterRunHasReturned: the work goes on, so the process must be replaced.
func TestCheckAfterRunHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		free := make(chan struct{})
		_, result := a.start(t, func(context.Context, context.Context) error { <-free; return nil })
		testkit.Pass(seconds(5.5))
		give(api, "b") // noticed at 6
		testkit.NotEqual(t, result(), nil, "Run returned nil")
		testkit.Pass(time.Until(time.Now().Add(seconds(26.1)).Truncate(time.Second)))
		unwell(t, a, "was lost")
		close(free)
		testkit.Pass(0)
		unwell(t, a, "")
	})
}

// TestCheckOfAnElectorThatHangs: the term is lost even if a hook does not return.
func TestCheckOfAnElectorThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		a := staying(t, sim.NewServer(sim.Leases), func(o *leaderelection.Options) {
			o.StuckAfter = 5 * time.Second
			o.Hook = hook.On(func(*hook.LeaseRenewal) { <-free })
		})
		stop, result := a.start(t, func(context.Context, context.Context) error { <-free; return nil })
		// The renewal, the loss and the grace time.
		testkit.Pass(2*time.Second + 12*time.Second + 5*time.Second)
		unwell(t, a, "")
		testkit.Pass(time.Nanosecond)
		unwell(t, a, "the Lease default/operator was lost 5s ago")
		close(free)
		stop()
		ok(t, result())
		unwell(t, a, "")
	})
}

// TestStandbysAreWell: a standby passes the Check for any time, with any API server error.
func TestStandbysAreWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		give(api, "b")
		a := newReplica(t, api, "a")
		unwell(t, a, "")
		a.cut()
		stop, result := a.start(t, neverLead(t))
		testkit.Pass(time.Hour)
		unwell(t, a, "")
		stop()
		ok(t, result())
		testkit.Equal(t, a.Name(), "leader-election-operator")
	})
}

// TestRenewalsAreTold: the hooks get each renewal with its duration.
func TestRenewalsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		var told []hook.LeaseRenewal
		campaigns := 0
		a := staying(t, api, func(o *leaderelection.Options) {
			o.Hook = hook.Join(
				hook.On(func(*hook.LeaseCampaign) { campaigns++ }),
				hook.On(func(r *hook.LeaseRenewal) { told = append(told, *r) }),
			)
		})
		slow := func(req *http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return api.RoundTrip(req)
		}
		a.line.Store(&slow)
		stop, result := a.start(t, untilStopped)
		testkit.Pass(seconds(2.5)) // acquired with a read and a write, at 0.1; renewed at 2.1
		label(t, api)
		testkit.Pass(seconds(2)) // a refused write, a read and a write, at 4.1
		a.cut()
		testkit.Pass(seconds(2))
		give(api, "b")
		a.mend()
		testkit.Pass(seconds(2))
		stop()
		ok(t, result())
		want := []struct {
			took         time.Duration
			slow, failed bool
		}{{100 * time.Millisecond, false, false}, {300 * time.Millisecond, true, false}, {0, false, true}, {0, true, true}}
		if len(told) != len(want) || campaigns != 2 {
			t.Fatalf("told %+v, and of %d campaigns", told, campaigns)
		}
		for i, w := range want {
			if r := told[i]; r.Lease != "operator" || r.Took.Round(time.Millisecond) != w.took || r.Slowpath != w.slow || (r.Err != nil) != w.failed {
				t.Errorf("renewal %d: %+v, want %+v", i, r, w)
			}
		}
	})
}

// TestForbidden_AMemberOfAShardGroup: the name of its Lease is random, so a Role cannot have it.
func TestForbidden_AMemberOfAShardGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			return r.Fail(http.StatusForbidden, `leases.coordination.k8s.io "web-1" is forbidden: User "eve" cannot get resource "leases"`)
		})
		var told atomic.Pointer[string]
		a := staying(t, api, func(o *leaderelection.Options) {
			o.Labels = map[string]string{"setpoint.dev/shard-group": "web"}
			o.Hook = hook.On(func(e *hook.LeaseTrouble) {
				if e.Err != nil {
					told.Store(new(e.Err.Error()))
				}
			})
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx, untilStopped) }()
		testkit.Pass(time.Second)
		cancel()
		ok(t, <-done)
		const want = "to create, get, list, watch, update and delete leases, without resourceNames"
		if says := told.Load(); says == nil || !strings.Contains(*says, want) || strings.Contains(*says, "the resourceName ") {
			t.Errorf("told %v, want %s", says, want)
		}
	})
}

// TestTroubleIsExplainedOnce: an error with a remedy outside of the process is logged once with the
// remedy, and once when it is over.
func TestTroubleIsExplainedOnce(t *testing.T) {
	const grant = "grant it, by a Role and a RoleBinding there, to create leases, and to get, update and watch the one with the resourceName operator"
	for name, test := range map[string]struct {
		verb   string
		code   int
		says   string
		want   string
		absent bool // the Lease
	}{
		"get":         {"get", http.StatusForbidden, `leases.coordination.k8s.io "operator" is forbidden: User "eve" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "default"`, `the user "eve" may not get leases (coordination.k8s.io) in the namespace default, here operator; ` + grant, false},
		"create":      {"create", http.StatusForbidden, `leases.coordination.k8s.io is forbidden: User "eve" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default"`, `the user "eve" may not create leases (coordination.k8s.io) in the namespace default, here operator; ` + grant, true},
		"update":      {"update", http.StatusForbidden, `leases.coordination.k8s.io "operator" is forbidden: User "eve" cannot update resource "leases" in API group "coordination.k8s.io" in the namespace "default"`, `the user "eve" may not update leases (coordination.k8s.io) in the namespace default, here operator; ` + grant, false},
		"a quota":     {"create", http.StatusForbidden, "exceeded quota: few", "exceeded quota: few", true},
		"a namespace": {"create", http.StatusNotFound, `namespaces "default" not found`, "the namespace default of the Lease operator does not exist; create it", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases)
				if !test.absent {
					give(api, "")
				}
				var granted atomic.Bool
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if isLease(r, test.verb) && !granted.Load() {
						return r.Fail(test.code, test.says)
					}
					return nil, nil
				})
				var told []string
				a := staying(t, api, func(o *leaderelection.Options) {
					o.Hook = hook.On(func(e *hook.LeaseTrouble) {
						if told = append(told, "over"); e.Err != nil {
							told[len(told)-1] = e.Err.Error()
						}
					})
				})
				log := &lines{}
				ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(t.Context(), log.logger()))
				done := make(chan error, 1)
				go func() { done <- a.Run(ctx, untilStopped) }()
				testkit.Pass(time.Minute)
				granted.Store(true)
				testkit.Pass(time.Minute)
				testkit.Equal(t, holder(t, api), "a", "holds the Lease")
				cancel()
				ok(t, <-done)
				if len(told) != 2 || told[0] != test.want || told[1] != "over" {
					t.Errorf("told\n%s\nwant\n%s\nover", strings.Join(told, "\n"), test.want)
				}
				testkit.Equal(t, log.count("WARN"), 1)
				testkit.Equal(t, log.count("INFO"), 1)
			})
		})
	}
}
