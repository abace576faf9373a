// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// leaseOf returns the options of a Lease in the namespace default.
func leaseOf(name string) leaderelection.Options {
	return leaderelection.Options{Lease: name, Namespace: "default"}
}

// leaseIn returns the options of the Lease that elected or sharded has set.
func leaseIn(o *manager.Options) *leaderelection.Options {
	if group, ok := o.LeaderElection.(*shard.Options); ok {
		return &group.Election
	}
	return o.LeaderElection.(*leaderelection.Options) //nolint:forcetypeassert // else a test is wrong
}

// holderOf returns the holder of a Lease.
func holderOf(api *sim.Server, lease string) string {
	l := api.Object(sim.Leases, "default", lease)
	if l == nil {
		return ""
	}
	spec, _ := l.Object["spec"].(map[string]any)
	who, _ := spec["holderIdentity"].(string)
	return who
}

// TestL8_OnlyAWarmReplicaCampaigns: a replica makes no request for the Lease before its controllers
// are synced.
func TestL8_OnlyAWarmReplicaCampaigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, unsynced := newAPI(), 0
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			leaseIn(o).Hook = hook.On(func(*hook.LeaseUnsynced) { unsynced++ })
		})
		warm, late := newFake("warm", &diary{}), newFake("late", &diary{})
		late.synced = make(chan struct{})
		m.Add(warm)
		m.Add(late)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.Equal(t, holder(api), "")
		testkit.Equal(t, isReady(m), false)
		close(late.synced)
		testkit.Pass(time.Millisecond)
		testkit.NotEqual(t, holder(api), "")
		testkit.Equal(t, isReady(m), true)
		stop()
		ok(t, result())
		testkit.Equal(t, unsynced, 0, "unsynced campaigns are reported")
	})
}

// TestL8_AColdReplicaCampaignsAfterTwoMinutes: and it calls the hook CampaignedUnsynced.
func TestL8_AColdReplicaCampaignsAfterTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		var unsynced []string
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			leaseIn(o).Hook = hook.On(func(e *hook.LeaseUnsynced) { unsynced = append(unsynced, e.Lease) })
		})
		never := newFake("never", &diary{})
		never.synced = make(chan struct{})
		m.Add(never)
		stop, result := start(t, m)
		testkit.Pass(2*time.Minute - time.Second)
		testkit.Equal(t, holder(api), "", "it leads although it is unsynced")
		testkit.Pass(2 * time.Second)
		testkit.NotEqual(t, holder(api), "")
		testkit.Equal(t, isReady(m), false)
		stop()
		ok(t, result())
		testkit.SlicesEqual(t, unsynced, []string{"operator"}, "the unsynced campaigns that are reported")
	})
}

// TestL8_AReplicaWithoutItsKindsNeverCampaigns: if the controller requires them. It is not ready,
// and campaigns when they are there. The controller may also be added while the replica waits.
func TestL8_AReplicaWithoutItsKindsNeverCampaigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, unsynced := newAPI(), 0
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			leaseIn(o).Hook = hook.On(func(*hook.LeaseUnsynced) { unsynced++ })
		})
		required := func(name string) *fakeController {
			f := newFake(name, &diary{})
			f.synced, f.required = make(chan struct{}), true
			m.Add(f)
			return f
		}
		first := required("first")
		stop, result := start(t, m)
		testkit.Pass(time.Hour)
		second := required("second")
		close(first.synced)
		testkit.Pass(time.Hour)
		testkit.Equal(t, api.Count("get", sim.Leases), 0)
		testkit.Equal(t, holder(api), "")
		close(second.synced)
		testkit.Pass(time.Second)
		testkit.NotEqual(t, holder(api), "")
		testkit.Equal(t, isReady(m), true)
		testkit.Equal(t, unsynced, 0)
		stop()
		ok(t, result())
	})
}

// TestL8_ByLease: an unsynced controller delays the campaign for its own Lease only.
func TestL8_ByLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m := newManager(api, elected)
		never := newFake("never", &diary{})
		never.synced = make(chan struct{})
		m.AddLease(leaseOf("backups")).Add(never)
		m.Add(newFake("warm", &diary{}))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.NotEqual(t, holder(api), "")
		testkit.Equal(t, holderOf(api, "backups"), "")
		stop()
		ok(t, result())
	})
}

// TestLease_TermsAreIndependent: losing a Lease stops only what runs under it (L5).
func TestLease_TermsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newAPI(), &diary{}
		m := newManager(api, elected)
		m.AddLeaderOnly("main", d.until("main", 0))
		backups := m.AddLease(leaseOf("backups"))
		backups.AddLeaderOnly("backup", d.until("backup", 0))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		if holderOf(api, "backups") == "" || holder(api) == "" {
			t.Fatal("not both Leases are held")
		}
		var failing atomic.Bool
		failing.Store(true)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if failing.Load() && r.Name == "backups" {
				return r.Refuse()
			}
			return nil, nil
		})
		testkit.Pass(14 * time.Second)
		failing.Store(false)
		testkit.Pass(time.Minute)
		backups.AddLeaderOnly("added", d.until("added", 0))
		testkit.Pass(time.Second)
		stop()
		ok(t, result())
		d.mu.Lock()
		defer d.mu.Unlock()
		if head := []string{"main starts", "backup starts", "backup ends", "backup starts", "added starts"}; len(d.events) != 8 ||
			!slices.Equal(d.events[2:5], head[2:]) || slices.Contains(d.events[:5], "main ends") {
			t.Errorf("what happened is %q", d.events)
		}
		testkit.Equal(t, holderOf(api, "backups"), "", "a Lease is not released")
		testkit.Equal(t, holder(api), "", "a Lease is not released")
	})
}

// TestLease_NobodyCampaignsForNothing: a replica does not campaign if its controllers are disabled.
func TestLease_NobodyCampaignsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.Controllers = []string{"*", "-backups"}
		})
		backups := m.AddLease(leaseOf("backups"))
		backups.Add(newFake("backups", &diary{}))
		m.Add(newFake("website", &diary{}))
		stop, result := start(t, m)
		testkit.Pass(time.Hour)
		testkit.NotEqual(t, holder(api), "")
		testkit.Equal(t, holderOf(api, "backups"), "")
		backups.AddLeaderOnly("janitor", (&diary{}).until("janitor", 0))
		testkit.Pass(time.Minute)
		if who := holderOf(api, "backups"); who == "" || who != holder(api) {
			t.Errorf("the Leases are held by %q and %q, want one process", holder(api), who)
		}
		stop()
		ok(t, result())
	})
}

// TestLease_WhileItRuns: a Lease can be added at any time (M6), with a controller, and the
// controller removed.
func TestLease_WhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, d := newAPI(), &diary{}
		m := newManager(api, nil)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		l := m.AddLease(leaseOf("late"))
		c := newFake("website", d)
		l.Add(c)
		testkit.Pass(time.Minute)
		ok(t, m.Remove(t.Context(), c))
		l.Add(c)
		testkit.Pass(time.Second)
		if d.mu.Lock(); len(d.events) != 6 || !slices.Equal(d.events[2:4], []string{"lead website ends", "warm website ends"}) {
			t.Errorf("what happened is %q", d.events)
		}
		d.mu.Unlock()
		stop()
		ok(t, result())
	})
}

func TestM4_TwoOfOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), elected)
		m.AddLease(leaseOf("operator"))
		wantParts(t, m.Run(t.Context()), `the process already campaigns for a Lease "operator"; use unique names`)
		m = newManager(newAPI(), elected)
		m.AddLease(leaderelection.Options{Namespace: "default"}).Add(newFake("website", &diary{}))
		wantParts(t, m.Run(t.Context()), `Lease: leaderelection.Options.Lease: name the Lease`)
		m = newManager(newAPI(), elected)
		m.AddLease(leaderelection.Options{Lease: "operator", Namespace: "other"})
		wantParts(t, m.Run(t.Context()), `already campaigns for a Lease "operator"`)
	})
}

// TestL5_TheErrorNamesTheKey: the error has the key of a Reconcile that outlives its Lease, with
// the stack.
func TestL5_TheErrorNamesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		api := newAPI()
		put(api, "front")
		m := newManager(api, elected)
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			stubborn(free)
			return controller.Result{}, nil
		})
		_, result := start(t, m)
		testkit.Pass(time.Minute)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Name == "operator" {
				return r.Refuse()
			}
			return nil, nil
		})
		wantParts(t, result(), "the Lease default/operator was lost", `controller "website" has not stopped in time (it reconciles default/front for 1m`,
			"manager_test.stubborn")
	})
}

// TestL5_WhatIsAboutToReturnIsNotNamed: after a suspension, the Lease is over before its work could
// end.
func TestL5_WhatIsAboutToReturnIsNotNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m := newManager(api, elected)
		m.AddLeaderOnly("late", func(ctx context.Context) error {
			<-ctx.Done() // 12 s after the last renewal
			time.Sleep(3*time.Second + 100*time.Millisecond)
			return nil
		})
		_, result := start(t, m)
		testkit.Pass(time.Minute)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Name == "operator" {
				return r.Refuse()
			}
			return nil, nil
		})
		err := result()
		wantParts(t, err, "the Lease default/operator was lost")
		if strings.Contains(err.Error(), "late") {
			t.Error(err)
		}
	})
}

// TestL5_WhatTheFenceRefusesIsNoFailure: after a suspension, the fence may refuse a request before
// the contexts of the term end.
func TestL5_WhatTheFenceRefusesIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "front")
		m := newManager(api, elected)
		m.AddLeaderOnly("write", func(ctx context.Context) error {
			term.FromContext(ctx).End(errors.New("nothing has been renewed for an hour"))
			return client.For[*corev1.ConfigMap](m.Client()).Delete(ctx, types.NamespacedName{Namespace: "default", Name: "front"})
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		testkit.NotEqual(t, holder(api), "", "the manager has stopped")
		stop()
		ok(t, result())
	})
}

func TestControllersByName(t *testing.T) {
	for _, c := range []struct{ names, run string }{
		{"", "blog website"}, {"*", "blog website"}, {"blog", "blog"}, {"*,-blog", "website"}, {"-blog,*", "website"}, {"blog,website", "blog website"},
	} {
		t.Run(c.names, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &diary{}
				m := newManager(newAPI(), func(o *manager.Options) {
					if c.names != "" {
						o.Controllers = strings.Split(c.names, ",")
					}
				})
				fakes := []*fakeController{newFake("blog", d), newFake("website", d)}
				for _, f := range fakes {
					f.lead = func(take, _ context.Context) error {
						d.note("%s", f.name)
						<-take.Done()
						return nil
					}
					f.warm = func(ctx context.Context) error {
						<-ctx.Done()
						return nil
					}
					m.Add(f)
				}
				stop, result := start(t, m)
				testkit.Pass(time.Second)
				testkit.Equal(t, isReady(m), true, "it is not ready")
				for _, f := range fakes { // enabled or not
					ok(t, m.Remove(t.Context(), f))
				}
				stop()
				ok(t, result())
				slices.Sort(d.events)
				d.want(t, strings.Fields(c.run)...)
			})
		})
	}
}

func TestM4_ControllersByWrongNames(t *testing.T) {
	for names, says := range map[string]string{
		"blgo":         `manager.Options.Controllers: no controller is named "blgo"; there are ["blog"]`,
		"*,-blgo":      `no controller is named "blgo"`,
		"-blog":        `"-blog" enables no controller; put "*" before it to enable all others`,
		"blog,-blog":   `"blog" is both enabled and disabled; keep one`,
		"*,-*":         `"-*" is invalid; use a name, "*" for all, or a name after a minus sign`,
		"*,":           `"" is invalid`,
		"blog,website": `no controller is named "website"`,
	} {
		m := newManager(newAPI(), func(o *manager.Options) { o.Controllers = strings.Split(names, ",") })
		m.Add(newFake("blog", &diary{}))
		wantParts(t, m.Run(t.Context()), says)
	}
}

// TestM6_TooLate: an addition after Run does not start, and is logged.
func TestM6_TooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		d := &diary{}
		m := newManager(newAPI(), func(o *manager.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		stop()
		ok(t, result())
		m.Add(newFake("website", d))
		m.AddEverywhere("reporter", d.until("reporter", 0))
		m.AddLeaderOnly("janitor", d.until("janitor", 0))
		d.want(t)
		wantParts(t, errors.New(log.String()), "not started: the manager is stopping or has stopped", `website`, `reporter`, `janitor`)
	})
}
