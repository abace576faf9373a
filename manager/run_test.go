// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
)

// unknown is a type without a scheme.
type unknown struct{ corev1.ConfigMap }

func TestM4_WiringMistakesComeOutTogether(t *testing.T) {
	m := manager.New(nil, manager.Options{Grace: -time.Second, LeaderElection: &leaderelection.Options{RetryPeriod: time.Hour}})
	cache.For[*unknown](m.Cache())
	m.Add(nil)
	m.Add((*controller.Controller[string])(nil))
	m.Add(controller.New[types.NamespacedName]("website", nil, controller.Options{Workers: -1}))
	m.Add(controller.New[types.NamespacedName]("website", nil, controller.Options{}))
	m.AddEverywhere("", func(context.Context) error { return nil })
	m.AddLeaderOnly("reporter", nil)
	events.For(m, events.Options{Namespace: "Ops"})
	want := strings.TrimSpace(`
the manager "" cannot run:
manager.Options.Name: name the program
manager.Options.Grace: -1s, must not be negative
leaderelection.Options.Lease: name the Lease
leaderelection.Options.Namespace: this is not a pod (no /var/run/secrets/kubernetes.io/serviceaccount/namespace), so name the namespace of the Lease
leaderelection.Options.RetryPeriod: 1h0m0s, must be positive and, with a quarter on top, shorter than RenewDeadline (10s)
the rest.Config is nil; client.LoadConfig finds one
Add: the controller is nil
Add: the controller is nil
two controllers are named "website"; give each a name of its own
AddEverywhere: give the function a name
AddLeaderOnly: "reporter" is a nil function
cache.For[*manager_test.unknown]: the scheme does not know the type; add its package with AddToScheme: no kind is registered for the type manager_test.unknown in scheme ...
events.Options.Namespace: "Ops" is not the name of a namespace: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
controller "website": controller.Options.Workers: -1, must not be negative
controller "website": the reconciler is nil; pass a Reconciler to New`)
	got := regexp.MustCompile(`in scheme ".*"`).ReplaceAllString(fmt.Sprint(m.Run(t.Context())), "in scheme ...")
	testkit.Equal(t, got, want, "Run says")
}

func TestM4_OneMistakeIsOneLine(t *testing.T) {
	m := manager.New(&rest.Config{}, manager.Options{})
	testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), `the manager "" cannot run: manager.Options.Name: name the program`, "Run says")
}

// A name is part of headers and log lines.
func TestM4_ANameIsOneLine(t *testing.T) {
	for _, name := range []string{"web\nsite", "website\r", "web\x00site"} {
		m := manager.New(&rest.Config{}, manager.Options{Name: name, FieldOwner: "website"})
		want := fmt.Sprintf("the manager %q cannot run: manager.Options.Name: %q has a line break or another control character; use printable text, which fits into a header", name, name)
		testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), want, "Run says")
	}
}

func TestM4_StrictNeedsTerms(t *testing.T) {
	m := manager.New(&rest.Config{}, manager.Options{Name: "test", RequireTerm: true})
	const want = `the manager "test" cannot run: manager.Options.RequireTerm: without LeaderElection there are no terms, and every write would be refused`
	testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), want, "Run says")
}

func TestM4_AConfigThatCannotBeUsedIsReportedOnce(t *testing.T) {
	m := manager.New(&rest.Config{Host: "https://example.test", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}}, manager.Options{
		Name: "test", LeaderElection: &leaderelection.Options{Lease: "operator", Namespace: "default"},
	})
	cache.For[*corev1.ConfigMap](m.Cache()) // handles still work
	if err := m.Run(t.Context()); err == nil || strings.Count(err.Error(), "/does/not/exist") != 1 {
		t.Errorf("Run says %v", err)
	}
}

func TestM4_ErrorsCarryTheNameOfWhatFailed(t *testing.T) {
	boom := errors.New("boom")
	after := func(err error) func(context.Context) error {
		return func(context.Context) error {
			time.Sleep(time.Second)
			return err
		}
	}
	explode := func(context.Context) error { panic("boom") }
	exit := func(context.Context) error {
		runtime.Goexit()
		return nil
	}
	late := errors.New("late")
	for name, test := range map[string]struct {
		add   func(m *manager.Manager, d *diary)
		wants []string
	}{
		"everywhere":    {func(m *manager.Manager, _ *diary) { m.AddEverywhere("reporter", after(boom)) }, []string{"reporter: boom"}},
		"leader only":   {func(m *manager.Manager, _ *diary) { m.AddLeaderOnly("reporter", after(boom)) }, []string{"reporter: boom"}},
		"cancelled":     {func(m *manager.Manager, _ *diary) { m.AddEverywhere("reporter", after(context.Canceled)) }, []string{"reporter: context canceled"}},
		"panic":         {func(m *manager.Manager, _ *diary) { m.AddEverywhere("reporter", explode) }, []string{"reporter: panic: boom\n", "run_test.go"}},
		"leading panic": {func(m *manager.Manager, _ *diary) { m.AddLeaderOnly("reporter", explode) }, []string{"reporter: panic: boom\n", "run_test.go"}},
		"exit":          {func(m *manager.Manager, _ *diary) { m.AddEverywhere("reporter", exit) }, []string{"reporter: it ended its goroutine, with runtime.Goexit"}},
		"warm": {func(m *manager.Manager, d *diary) {
			c := newFake("website", d)
			c.warm = after(boom)
			m.Add(c)
		}, []string{`the sources of controller "website": boom`}},
		"lead": {func(m *manager.Manager, d *diary) {
			c := newFake("website", d)
			c.lead = func(take, _ context.Context) error { return after(boom)(take) }
			m.Add(c)
		}, []string{`controller "website": boom`}},
		"cache": {func(m *manager.Manager, _ *diary) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = m.Cache().Run(ctx)
		}, []string{"cache: this cache has run before"}},
		"several, in order": {func(m *manager.Manager, _ *diary) {
			m.AddLeaderOnly("second", func(ctx context.Context) error {
				<-ctx.Done()
				return late
			})
			m.AddEverywhere("first", after(boom))
		}, []string{"first: boom\nsecond: late"}},
	} {
		for _, options := range []func(*manager.Options){nil, elected} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var d diary
					api := newAPI()
					m := newManager(api, options)
					m.AddEverywhere("bystander", d.until("bystander", 0))
					test.add(m, &d)
					began := time.Now()
					err := m.Run(t.Context())
					wantParts(t, err, test.wants...)
					if !strings.HasPrefix(err.Error(), test.wants[0]) {
						t.Errorf("Run returned %v", err)
					}
					testkit.AtMost(t, time.Since(began), time.Second)
					testkit.Equal(t, holder(api), "", "holds the lease")
				})
			})
		}
	}
}

func TestM4_ALeaseThatIsLostTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		defer close(free)
		api := newAPI()
		m := newManager(api, elected)
		m.AddLeaderOnly("reporter", func(context.Context) error {
			stubborn(free)
			return nil
		})
		_, result := start(t, m)
		testkit.Pass(time.Minute)
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		wantParts(t, result(), "leading: the Lease default/operator was lost, and the work under it has not stopped before it expired",
			"reporter has not stopped in time:\n", "manager_test.stubborn")
	})
}

func TestM5_TwoManagersDoNotMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type one struct {
			api    *sim.Server
			mu     sync.Mutex
			keys   []string
			stop   func()
			result func() error
		}
		var both [2]*one
		for i := range both {
			o := &one{api: newAPI()}
			put(o.api, []string{"a", "b"}[i])
			m := newManager(o.api, elected)
			configMaps(m, "website", func(_ context.Context, key types.NamespacedName) (controller.Result, error) {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.keys = append(o.keys, key.Name)
				return controller.Result{}, nil
			})
			o.stop, o.result = start(t, m)
			both[i] = o
		}
		testkit.Pass(time.Minute)
		both[0].stop()
		ok(t, both[0].result())
		put(both[1].api, "c")
		testkit.Pass(time.Minute)
		both[1].stop()
		ok(t, both[1].result())
		testkit.SlicesEqual(t, both[0].keys, []string{"a"})
		testkit.SlicesEqual(t, both[1].keys, []string{"b", "c"})
	})
}

func TestRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		stop, result := start(t, m)
		synctest.Wait()
		for range 2 {
			testkit.Equal(t, fmt.Sprint(m.Run(t.Context())), `the manager "test" has run before; make a new one`, "a second Run returned")
		}
		stop()
		ok(t, result())
	})
}

func TestWithoutLeaderElectionItLeadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		api := newAPI()
		m := newManager(api, nil)
		c := newFake("website", &d)
		c.synced = make(chan struct{}) // never
		m.Add(c)
		m.AddLeaderOnly("leader only", d.until("leader only", 0))
		stop, result := start(t, m)
		synctest.Wait()
		slices.Sort(d.events)
		d.want(t, "lead website starts", "leader only starts", "warm website starts")
		stop()
		ok(t, result())
		testkit.Equal(t, api.Count("", sim.Leases), 0, "requests for leases")
	})
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(newAPI(), nil)
		first, second := newFake("first", &diary{}), newFake("second", &diary{})
		second.synced = make(chan struct{})
		m.Add(first)
		m.Add(second)
		stop, result := start(t, m)
		testkit.Pass(time.Hour)
		testkit.Equal(t, isReady(m), false, "it is ready before its controllers are synced")
		close(second.synced)
		synctest.Wait()
		testkit.Equal(t, isReady(m), true, "it is not ready")
		stop()
		ok(t, result())
	})
}

func TestALostTermIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		api := newAPI()
		m := newManager(api, elected)
		m.AddEverywhere("everywhere", d.until("everywhere", 0))
		m.AddLeaderOnly("leader only", func(ctx context.Context) error {
			d.note("leads")
			<-ctx.Done()
			d.note("because %v", errors.Is(context.Cause(ctx), leaderelection.ErrLost))
			return context.Cause(ctx)
		})
		m.Add(newFake("website", &d))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		d.mu.Lock()
		d.events = nil
		d.mu.Unlock()
		api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		testkit.Pass(time.Minute)
		slices.Sort(d.events)
		d.want(t, "because true", "lead website ends")
		api.Intercept(nil)
		testkit.Pass(time.Minute)
		slices.Sort(d.events[2:])
		d.want(t, "because true", "lead website ends", "lead website starts", "leads")
		stop()
		ok(t, result())
	})
}

func TestLogger(t *testing.T) {
	var used, other bytes.Buffer
	text := func(to *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
	for name, test := range map[string]struct {
		options, inContext, global *bytes.Buffer
	}{
		"Options":       {&used, &other, &other},
		"the context's": {nil, &used, &other},
		"slog.Default":  {nil, nil, &used},
	} {
		t.Run(name, func(t *testing.T) {
			used.Reset()
			other.Reset()
			before := slog.Default()
			defer slog.SetDefault(before)
			slog.SetDefault(text(test.global))
			synctest.Test(t, func(t *testing.T) {
				m := newManager(newAPI(), func(o *manager.Options) {
					elected(o)
					o.Logger = nil
					if test.options != nil {
						o.Logger = text(test.options)
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				if test.inContext != nil {
					ctx = logr.NewContextWithSlogLogger(ctx, text(test.inContext))
				}
				m.AddLeaderOnly("reporter", func(ctx context.Context) error {
					logr.FromContextAsSlogLogger(ctx).Info("hello from a function")
					return nil
				})
				time.AfterFunc(time.Minute, cancel)
				ok(t, m.Run(ctx))
			})
			for _, line := range []string{"msg=ready", "msg=leading", "msg=\"hello from a function\"", "msg=\"the lease is released\""} {
				testkit.Contains(t, used.String(), line, fmt.Sprintf("the log has no %s", line))
			}
			testkit.Equal(t, other.String(), "")
		})
	}
}

func TestUserAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		m := newManager(api, elected)
		configMaps(m, "website", slow)
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		for _, r := range api.Requests() {
			if agent := r.Header.Get("User-Agent"); !strings.HasPrefix(agent, "test ") || strings.HasSuffix(agent, "/leader-election") != (r.Resource.Resource == sim.Leases.Name && r.Verb != "discover") {
				t.Errorf("%s says that it is %q", r, agent)
			}
		}
	})
}

func TestFieldOwnerDefaultsToTheName(t *testing.T) {
	m := manager.New(&rest.Config{}, manager.Options{Name: strings.Repeat("x", 129)})
	testkit.ErrorContains(t, m.Run(t.Context()), "FieldOwner", "Run says")
}
