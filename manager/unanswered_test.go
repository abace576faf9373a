// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// deaf is a transport whose requests for Leases have no answer while on, even after the end of
// their contexts: as with an exec plugin that hangs.
type deaf struct {
	http.RoundTripper

	of   string // part of the path
	on   atomic.Bool
	free chan struct{}
}

func newDeaf(to http.RoundTripper) *deaf {
	return &deaf{RoundTripper: to, of: "/leases", free: make(chan struct{})}
}

func (d *deaf) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

func (d *deaf) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.on.Load() && strings.Contains(r.URL.Path+"?"+r.URL.RawQuery, d.of) {
		<-d.free
	}
	return d.RoundTripper.RoundTrip(r)
}

func (d *deaf) mend() {
	d.on.Store(false)
	close(d.free)
}

func idle(context.Context, types.NamespacedName) (controller.Result, error) {
	return controller.Result{}, nil
}

// notReady checks that /readyz fails, with a line that contains the text.
func notReady(t *testing.T, c *http.Client, text string) {
	t.Helper()
	if status, says := get(t, c, "http://x/readyz"); status != 500 || !strings.Contains(says, text) {
		t.Errorf("/readyz is %d, want 500 and %q:\n%s", status, text, says)
	}
}

// TestL5_ALeaderWhoseRequestsHang: the loss has a log line and a hook in time, and trouble before.
// The probes fail: first readiness, and later liveness. If the requests return, the replica leads
// again without a restart.
func TestL5_ALeaderWhoseRequestsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeaf(newAPI())
		var lost atomic.Pointer[time.Time]
		var log testkit.Buffer
		m, c := healthy(t, d, func(o *manager.Options) {
			elected(o)
			leaseIn(o).Identity = "a"
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.Hook = hook.On(func(*hook.LeaseLost) { now := time.Now(); lost.Store(&now) })
		})
		configMaps(m, "website", idle)
		stop, result := start(t, m)
		testkit.Pass(3 * time.Second)
		want(t, c, "http://x/readyz", 200, "ok")
		began := time.Now()
		d.on.Store(true)
		testkit.Pass(7 * time.Second) // it renews at 4 s, and the answer may take 5 s
		notReady(t, c, "[-]leader-election-operator failed: no answer to a request for the Lease default/operator since 2000-01-01T00:00:04Z")
		want(t, c, "http://x/livez", 200, "ok")
		testkit.Contains(t, log.String(), "the lease was not renewed")
		testkit.Equal(t, lost.Load(), nil)
		testkit.Pass(5 * time.Second)
		if at := lost.Load(); at == nil || at.Sub(began) != 11*time.Second || !strings.Contains(log.String(), "the lease is lost") {
			t.Errorf("the loss is reported at %s, want 11s after %s; the log is\n%s", at, began, log.String())
		}
		testkit.Pass(20 * time.Second)
		status, says := get(t, c, "http://x/livez")
		testkit.Equal(t, status, 500)
		testkit.Contains(t, says, "[-]leader-election-operator failed: a request for the Lease default/operator has not returned since 2000-01-01T00:00:04Z")
		testkit.AtMost(t, strings.Count(log.String(), "no answer to a request"), 3)
		d.mend()
		testkit.Pass(3 * time.Second)
		want(t, c, "http://x/livez", 200, "ok")
		want(t, c, "http://x/readyz", 200, "ok")
		if !strings.HasSuffix(strings.TrimSpace(log.String()), "a health check has recovered\" path=/readyz check=leader-election-operator") || strings.Count(log.String(), "msg=leading") != 2 {
			t.Errorf("it does not lead again:\n%s", log.String())
		}
		stop()
		ok(t, result())
	})
}

// TestM1_AStopWhileALeaseRequestHangs: Run ends in time, and its error names the request, with its
// stack.
func TestM1_AStopWhileALeaseRequestHangs(t *testing.T) {
	for name, before := range map[string]time.Duration{"acquisition": 0, "renewal": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDeaf(newAPI())
				m := newManager(d, elected)
				configMaps(m, "website", idle)
				d.on.Store(before == 0)
				stop, result := start(t, m)
				testkit.Pass(before)
				d.on.Store(true)
				testkit.Pass(2 * time.Second)
				began := time.Now()
				stop()
				wantParts(t, result(), "leading: ", "a request for the Lease default/operator has not returned since", "manager_test.(*deaf).RoundTrip")
				testkit.AtMost(t, time.Since(began), 10*time.Second)
				d.mend()
				synctest.Wait()
			})
		})
	}
}

// TestNotReady_BeforeTheLeaseHasAnswered: a rollout must not replace a leader by a replica that
// cannot lead. It does not matter why there is no answer yet.
func TestNotReady_BeforeTheLeaseHasAnswered(t *testing.T) {
	for name, hang := range map[string]func(d *deaf, api *sim.Server) (mend func()){
		"hangs": func(_ *deaf, api *sim.Server) func() {
			var over atomic.Bool
			api.Intercept(func(r *sim.Request) (*http.Response, error) {
				if r.Resource.Resource != sim.Leases.Name || over.Load() {
					return nil, nil
				}
				return r.Hang()
			})
			return func() { over.Store(true) }
		},
		"ignores its context": func(d *deaf, _ *sim.Server) func() {
			d.on.Store(true)
			return d.mend
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				d := newDeaf(api)
				mend := hang(d, api)
				m, c := healthy(t, d, elected)
				configMaps(m, "website", idle)
				stop, result := start(t, m)
				for _, after := range []time.Duration{0, time.Millisecond, 4 * time.Second, time.Second, 15 * time.Second} {
					testkit.Pass(after)
					notReady(t, c, "[-]leader-election-operator failed: ")
				}
				mend()
				testkit.Pass(10 * time.Second)
				want(t, c, "http://x/readyz", 200, "ok")
				stop()
				ok(t, result())
			})
		})
	}
}

// TestNotReady_SaysWhatItWaitsFor: for its controllers, and then for an answer.
func TestNotReady_SaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Resource.Resource == sim.Leases.Name {
				return r.Hang()
			}
			return nil, nil
		})
		m, c := healthy(t, api, elected)
		unsynced := newFake("unsynced", &diary{})
		unsynced.synced = make(chan struct{})
		m.Add(unsynced)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, c, "http://x/readyz/leader-election-operator", 500,
			"[-]leader-election-operator failed: this replica does not campaign for the Lease default/operator before its controllers are synced")
		close(unsynced.synced)
		testkit.Pass(time.Second)
		want(t, c, "http://x/readyz/leader-election-operator", 500,
			"[-]leader-election-operator failed: no request for the Lease default/operator has been answered yet")
		stop()
		ok(t, result())
	})
}

// TestReady_AStandbyWithItsFirstAnswer: it saw the Lease of another replica, and can take over. So
// can one without work under the Lease, which does not campaign.
func TestReady_AStandbyWithItsFirstAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		leader := newManager(api, elected)
		configMaps(leader, "website", idle)
		stopLeader, leaderEnds := start(t, leader)
		testkit.Pass(3 * time.Second)
		m, c := healthy(t, api, elected)
		configMaps(m, "website", idle)
		without, other := healthy(t, api, elected)
		stop, result := start(t, m)
		stopOther, otherEnds := start(t, without)
		testkit.Pass(time.Millisecond)
		want(t, c, "http://x/readyz", 200, "ok")
		want(t, other, "http://x/readyz", 200, "ok")
		for _, stop := range []func(){stop, stopOther, stopLeader} {
			stop()
		}
		for _, result := range []func() error{result, otherEnds, leaderEnds} {
			ok(t, result())
		}
	})
}

// TestReady_WhileTheAPIServerIsDown: all replicas would be unready at once, also for their
// webhooks. The Lease's trouble is a remark.
func TestReady_WhileTheAPIServerIsDown(t *testing.T) {
	for name, fail := range map[string]func(*sim.Request) (*http.Response, error){"refuses": (*sim.Request).Refuse, "hangs": (*sim.Request).Hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				m, c := healthy(t, api, elected)
				configMaps(m, "website", idle)
				stop, result := start(t, m)
				testkit.Pass(3 * time.Second)
				want(t, c, "http://x/readyz", 200, "ok")
				api.Intercept(fail)
				testkit.Pass(time.Minute)
				if status, says := get(t, c, "http://x/readyz?verbose"); status != 200 || !strings.Contains(says, "[+]leader-election-operator ok: ") {
					t.Errorf("/readyz is %d\n%s", status, says)
				}
				want(t, c, "http://x/livez", 200, "ok")
				stop()
				ok(t, result())
			})
		})
	}
}
