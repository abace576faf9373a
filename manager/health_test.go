// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime"
	"strings"
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

// healthy makes a manager with a health server on a wire.
func healthy(t *testing.T, api http.RoundTripper, change func(*manager.Options)) (*manager.Manager, *http.Client) {
	w := newWire()
	m := newManager(api, change)
	addHealth(m, serverOptions{Listener: w})
	return m, w.client(t)
}

func TestHealthSpeaksAsKubernetesDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := healthy(t, newAPI(), nil)
		bad := errors.New("it is broken\nin two ways")
		m.AddLivezCheck("good", func(context.Context) error { return nil })
		m.AddReadyzCheck("bad", func(context.Context) error { return bad })
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, c, "http://x/livez", 200, "ok")
		want(t, c, "http://x/healthz", 200, "ok")
		want(t, c, "http://x/livez?verbose", 200, "[+]ping ok", "[+]good ok", "livez check passed")
		want(t, c, "http://x/healthz?verbose=true", 200, "[+]ping ok", "[+]good ok", "healthz check passed")
		want(t, c, "http://x/livez/good", 200, "ok")
		want(t, c, "http://x/livez/", 200, "ok")
		want(t, c, "http://x/livez/bad", 404, `there is no check "bad"`)
		want(t, c, "http://x/readyz", 500, "[+]informers ok", "[-]bad failed: it is broken; in two ways", "[+]shutdown ok", "readyz check failed")
		want(t, c, "http://x/readyz/bad", 500, "[-]bad failed: it is broken; in two ways")
		want(t, c, "http://x/readyz?exclude=bad", 200, "ok")
		want(t, c, "http://x/readyz?verbose&exclude=bad&exclude=worse", 200,
			"[+]informers ok", "[+]shutdown ok", `warn: some health checks cannot be excluded: no matches for ["worse"]`, "readyz check passed")
		resp, err := c.Post("http://x/livez", "text/plain", nil)
		testkit.NoError(t, err)
		testkit.Equal(t, resp.StatusCode, http.StatusMethodNotAllowed)
		resp.Body.Close()
		if resp, err = c.Head("http://x/readyz"); err != nil || resp.StatusCode != 500 {
			t.Errorf("a HEAD is answered with %v, %v", resp, err)
		}
		resp.Body.Close()
		bad = nil
		m.AddReadyzCheck("late", func(context.Context) error { return errors.New("not yet") })
		want(t, c, "http://x/readyz?exclude=late", 200, "ok")
		want(t, c, "http://x/readyz/late", 500, "[-]late failed: not yet")
		stop()
		ok(t, result())
	})
}

// hollow is an error whose Error panics: a nil pointer in an interface.
type hollow struct{ text string }

func (h *hollow) Error() string { return h.text }

// A check that ignores its context and hangs is called once and delays no answer.
func TestAHealthCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := healthy(t, newAPI(), nil)
		free := make(chan struct{})
		var calls atomic.Int32
		m.AddLivezCheck("stubborn", func(context.Context) error {
			calls.Add(1)
			stubborn(free)
			return nil
		})
		m.AddLivezCheck("slow", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		m.AddLivezCheck("mad", func(context.Context) error { panic("mad") })
		m.AddLivezCheck("hollow", func(context.Context) error { return (*hollow)(nil) })
		m.AddLivezCheck("gone", func(context.Context) error {
			runtime.Goexit()
			return nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		began := time.Now()
		want(t, c, "http://x/livez", 500, "[+]ping ok", "[-]stubborn failed: it has not answered for 800ms",
			"[-]slow failed: context deadline exceeded", "[-]mad failed: it has panicked: mad",
			"[-]hollow failed: it has panicked: runtime error: invalid memory address or nil pointer dereference",
			"[-]gone failed: it ended its goroutine, with runtime.Goexit or testing.T.FailNow; return an error instead", "livez check failed")
		testkit.Equal(t, time.Since(began), 800*time.Millisecond, "the answer took")
		testkit.Pass(10 * time.Second)
		began = time.Now()
		want(t, c, "http://x/livez/stubborn", 500, "[-]stubborn failed: it has not answered for 10.8s")
		want(t, c, "http://x/livez/ping", 200, "ok")
		testkit.Equal(t, time.Since(began), 0)
		testkit.Equal(t, calls.Load(), 1)
		close(free)
		synctest.Wait()
		want(t, c, "http://x/livez/stubborn", 200, "ok")
		testkit.Equal(t, calls.Load(), 2, "the check was called")
		stop()
		ok(t, result())
	})
}

// TestNotReadyWithoutTheLease: a replica that cannot take over is not ready. After the first
// contact with the Lease it stays ready.
func TestNotReadyWithoutTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		var forbidden atomic.Bool
		forbidden.Store(true)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if forbidden.Load() {
				return r.Fail(http.StatusForbidden, "no right")
			}
			return nil, nil
		})
		m, c := healthy(t, api, elected)
		m.Add(newFake("website", &diary{}))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		if status, says := get(t, c, "http://x/readyz"); status != 500 || !strings.Contains(says, "[-]leader-election-operator failed: it could not be used yet: ") || !strings.Contains(says, "no right") {
			t.Errorf("%d\n%s", status, says)
		}
		forbidden.Store(false)
		testkit.Pass(time.Minute)
		want(t, c, "http://x/readyz/leader-election-operator", 200, "ok")
		forbidden.Store(true)
		testkit.Pass(5 * time.Second)
		if status, says := get(t, c, "http://x/readyz?verbose"); status != 200 || !strings.Contains(says, "[+]leader-election-operator ok: ") || !strings.Contains(says, "no right") {
			t.Errorf("%d\n%s", status, says)
		}
		stop()
		ok(t, result())
	})
}

func TestReadyWhenTheControllersAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		lists := make(chan struct{})
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Resource.Resource == "configmaps" {
				<-lists
			}
			return nil, nil
		})
		m, c := healthy(t, api, elected)
		configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		})
		pods := cache.For[*corev1.Pod](m.Cache()) // a kind that is not served
		other := controller.New("other", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, nil
		}), controller.Options{})
		other.Watch(source.Kind(pods, handler.Self()))
		other.Reads(cache.For[*corev1.ConfigMap](m.Cache()))
		m.Add(other)
		plain := newFake("plain", &diary{})
		plain.synced = make(chan struct{})
		m.Add(plain)
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		const trouble = "waiting for its API: the API server at https://sim.test does not serve Pod of v1; install its CRD, or check the group and version"
		want(t, c, "http://x/readyz", 500,
			"[-]leader-election-operator failed: this replica does not campaign for the Lease default/operator before its controllers are synced",
			"[-]controller-website failed: it waits for its sources: Kind(ConfigMap.v1): syncing",
			"[-]controller-other failed: it waits for its sources: Kind(Pod.v1): "+trouble+"; ConfigMap.v1: syncing",
			"[-]controller-plain failed: it waits for its sources",
			"[+]informers ok: Pod.v1: "+trouble, "[+]shutdown ok", "readyz check failed")
		want(t, c, "http://x/livez", 200, "ok")
		close(lists)
		close(plain.synced)
		testkit.Pass(time.Second)
		want(t, c, "http://x/readyz?verbose", 200, "[+]leader-election-operator ok", "[+]controller-website ok", "[+]controller-other ok: Kind(Pod.v1): "+trouble, "[+]controller-plain ok",
			"[+]informers ok: Pod.v1: "+trouble, "[+]shutdown ok", "readyz check passed")
		late := newFake("late", &diary{})
		late.synced = make(chan struct{})
		m.Add(late)
		testkit.Pass(time.Second)
		// A replica that was ready stays so.
		want(t, c, "http://x/readyz/controller-late", 200, "ok")
		ok(t, m.Remove(t.Context(), late))
		want(t, c, "http://x/readyz/controller-late", 404, `there is no check "controller-late"`)
		stop()
		ok(t, result())
	})
}

// TestNotReadyWithoutARequiredKind: neither at the start nor when the controller is added later. It
// becomes ready within 5 seconds after the kind is served.
func TestNotReadyWithoutARequiredKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.Withdraw(sim.Secrets, sim.ConfigMaps)
		m, c := healthy(t, api, elected)
		add := func(name string, s source.Source[types.NamespacedName]) {
			required := controller.New(name, controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, nil
			}), controller.Options{RequireKinds: true})
			required.Watch(s)
			m.Add(required)
		}
		add("website", source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
		stop, result := start(t, m)
		testkit.Pass(10 * time.Minute)
		const trouble = "waiting for its API: the API server at https://sim.test does not serve %s of v1; install its CRD, or check the group and version"
		want(t, c, "http://x/readyz/controller-website", 500,
			"[-]controller-website failed: it waits for its sources: Kind(ConfigMap.v1): "+fmt.Sprintf(trouble, "ConfigMap"))
		testkit.Equal(t, isReady(m), false)
		testkit.Equal(t, holder(api), "")
		testkit.Equal(t, api.Count("create", sim.Leases), 0)
		api.Serve(sim.ConfigMaps)
		testkit.Pass(5 * time.Second)
		want(t, c, "http://x/readyz", 200, "ok")
		testkit.Equal(t, isReady(m), true)
		testkit.NotEqual(t, holder(api), "")
		add("late", source.Kind(cache.For[*corev1.Secret](m.Cache()), handler.Self()))
		testkit.Pass(time.Second)
		want(t, c, "http://x/readyz/controller-late", 500,
			"[-]controller-late failed: it waits for its sources: Kind(Secret.v1): "+fmt.Sprintf(trouble, "Secret"))
		api.Withdraw(sim.ConfigMaps) // after its first sync it is as without RequireKinds
		testkit.Pass(time.Minute)
		want(t, c, "http://x/readyz/controller-website", 200, "ok")
		stop()
		ok(t, result())
	})
}

func TestAStandbyIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		leader := newManager(api, elected)
		stopLeader, leaderResult := start(t, leader)
		testkit.Pass(time.Second)
		m, c := healthy(t, api, elected)
		m.Add(newFake("website", &diary{}))
		m.AddLease(leaderelection.Options{Lease: "other", Namespace: "default"})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, c, "http://x/readyz", 200, "ok")
		want(t, c, "http://x/livez?verbose", 200, "[+]ping ok", "[+]leader-election-operator ok", "[+]leader-election-other ok", "[+]controller-website ok", "livez check passed")
		stop()
		ok(t, result())
		stopLeader()
		ok(t, leaderResult())
	})
}

// If work continues after its term is lost, livez fails, so that the process is restarted.
func TestStuckWorkOfALostTermFailsLivez(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m, c := healthy(t, api, func(o *manager.Options) {
			o.LeaderElection = &leaderelection.Options{Lease: "operator", Namespace: "default", Stay: true}
		})
		free := make(chan struct{})
		m.AddLeaderOnly("stubborn", func(context.Context) error {
			stubborn(free)
			return nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		want(t, c, "http://x/livez/leader-election-operator", 200, "ok")
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		testkit.Pass(time.Hour)
		status, body := get(t, c, "http://x/livez")
		testkit.Equal(t, status, 500, "livez")
		testkit.Contains(t, body, "[-]leader-election-operator failed: ", "livez")
		close(free)
		testkit.Pass(time.Second)
		want(t, c, "http://x/livez", 200, "ok")
		stop()
		ok(t, result())
	})
}

func TestStalledAfter_EndsTheLifeOfAStalledProcess(t *testing.T) {
	for name, test := range map[string]struct {
		set, deadline, last time.Duration // last is when livez is still good; 0: always
	}{
		"by default":           {0, 0, 30*time.Minute - time.Second},
		"with a long Deadline": {0, 20 * time.Minute, 40*time.Minute - time.Second},
		"as set":               {time.Minute, time.Hour, 59 * time.Second},
		"never":                {-1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				for _, name := range []string{"a", "b", "c"} {
					put(api, name)
				}
				m, c := healthy(t, api, func(o *manager.Options) {
					o.StalledAfter, o.ControllerDefaults.Deadline = test.set, test.deadline
				})
				free := make(chan struct{})
				configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
					stubborn(free)
					return controller.Result{}, nil
				})
				stop, result := start(t, m)
				testkit.Pass(cmp.Or(test.last, 24*time.Hour))
				if test.last == 0 {
					want(t, c, "http://x/livez?verbose", 200, "[+]ping ok", "livez check passed")
				} else {
					want(t, c, "http://x/livez", 200, "ok")
					testkit.Pass(2 * time.Second)
					if status, body := get(t, c, "http://x/livez/controller-website"); status != 500 || !strings.Contains(body, " has run since 2000-01-01T00:00:00Z") {
						t.Errorf("%d %s", status, body)
					}
				}
				close(free)
				stop()
				ok(t, result())
			})
		})
	}
}

func TestHealthChecksAreLoggedWhenTheyTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m, c := healthy(t, newAPI(), func(o *manager.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		m.AddLivezCheck("bad", func(context.Context) error { return errors.New("it is broken") })
		stop, result := start(t, m)
		testkit.Pass(time.Second)
		for range 3 {
			get(t, c, "http://x/livez")
		}
		stop()
		ok(t, result())
		testkit.Count(t, log.String(), `msg="a health check fails" path=/livez check=bad err="it is broken"`, 1)
	})
}

func TestHealthWiringMistakes(t *testing.T) {
	good := func(context.Context) error { return nil }
	for name, test := range map[string]struct {
		options func(*manager.Options)
		wire    func(*manager.Manager)
		want    string
	}{
		"no name":        {wire: func(m *manager.Manager) { m.AddLivezCheck("", good) }, want: `AddLivezCheck: "" is not a valid name for a check; use letters, digits, '-', '_' and '.'`},
		"a slash":        {wire: func(m *manager.Manager) { m.AddReadyzCheck("a/b", good) }, want: `AddReadyzCheck: "a/b" is not a valid name for a check`},
		"no check":       {wire: func(m *manager.Manager) { m.AddReadyzCheck("a", nil) }, want: `AddReadyzCheck: "a" is a nil function`},
		"a name of ours": {wire: func(m *manager.Manager) { m.AddLivezCheck("ping", good) }, want: `AddLivezCheck: "ping" is the name of a check of the manager; choose another one`},
		"a controller's": {wire: func(m *manager.Manager) { m.AddReadyzCheck("controller-a", good) }, want: `AddReadyzCheck: "controller-a" is the name of a check of the manager`},
		"twice": {wire: func(m *manager.Manager) {
			m.AddReadyzCheck("a", good)
			m.AddReadyzCheck("a", good)
			m.AddLivezCheck("a", good) // another path
		}, want: `AddReadyzCheck: two checks are named "a"; give each check, or each server, a name of its own`},
		"two places": {wire: func(m *manager.Manager) { addHealth(m, serverOptions{Address: ":0", Listener: newWire()}) },
			want: "the health server: server.Options: both Address and Listener are set; set one"},
		"no address": {wire: func(m *manager.Manager) { addHealth(m, serverOptions{Address: "nowhere"}) },
			want: "the health server: cannot listen on nowhere: listen tcp: address nowhere: missing port in address; give a host and a port, such as localhost:8081"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(newAPI(), test.options)
			if test.wire != nil {
				test.wire(m)
			}
			err := m.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), `the manager "test" cannot run: `+test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Run returned %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestStalledAfter_OfADeadlineWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		c := controller.New("c", controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			<-ctx.Done()
			return controller.Result{}, nil
		}), controller.Options{Deadline: math.MaxInt64})
		m.Add(c)
		stop, result := start(t, m)
		c.Queue().Add(types.NamespacedName{Name: "a"})
		c.Queue().Add(types.NamespacedName{Name: "b"})
		testkit.Pass(time.Hour)
		ok(t, livez(m))
		stop()
		ok(t, result())
	})
}

func livez(m *manager.Manager) error {
	for _, c := range m.Livez() {
		if strings.HasPrefix(c.Name(), "controller-") {
			if err := c.Check(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}
