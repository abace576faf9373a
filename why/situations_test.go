// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

type reconcile = controller.Func[types.NamespacedName]

// world is an operator for ConfigMaps, which also watches Secrets of theirs. The fields are set
// before it starts.
type world struct {
	t   *testing.T
	api *sim.Server

	options    controller.Options
	manager    manager.Options
	scope      cache.Scope // of the ConfigMaps
	predicates []handler.Predicate
	handler    handler.Handler[types.NamespacedName]
	reconcile  reconcile

	stop       func() // idempotent; nil before start
	mgr        *manager.Manager
	add        func() // adds more to mgr, or nil
	controller *controller.Controller[types.NamespacedName]
	maps       *cache.Handle[*corev1.ConfigMap]
	calls      atomic.Int64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, api: sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases), handler: handler.Self()}
	w.reconcile = func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, nil
	}
	w.options.Logger = slog.New(slog.DiscardHandler)
	w.manager = manager.Options{Name: "test", Logger: w.options.Logger}
	return w
}

// start runs the operator until the end of the test.
func (w *world) start() {
	w.mgr = manager.New(&rest.Config{Host: sim.Host, Transport: w.api, QPS: -1}, w.manager)
	w.maps = cache.ForScope[*corev1.ConfigMap](w.mgr.Cache(), w.scope)
	w.controller = controller.New("site", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		w.calls.Add(1)
		return w.reconcile(ctx, key)
	}), w.options)
	w.controller.Watch(source.Kind(w.maps, w.handler, w.predicates...))
	w.controller.Watch(source.Kind(cache.For[*corev1.Secret](w.mgr.Cache()), handler.Owner(w.maps)))
	w.mgr.Add(w.controller)
	if w.add != nil {
		w.add()
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.mgr.Run(ctx) }()
	if w.stop == nil { // else it is started again
		w.t.Cleanup(func() {
			w.stop()
			w.api.Close()
		})
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Equal(w.t, <-done, nil)
	})
	synctest.Wait()
}

func (w *world) put(m *corev1.ConfigMap) {
	w.api.Put(sim.ConfigMaps, m)
	synctest.Wait()
}

func site() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}}, Data: map[string]string{"value": "confidential"}}
}

var (
	web      = why.Object{Kind: "configmap", Namespace: "default", Name: "web"}
	child    = why.Object{Kind: "Secret", Namespace: "default", Name: "child"}
	maps     = schema.GroupResource{Resource: "configmaps"}
	errFlaky = errors.New("the registry is closed")
)

func fails(err error) reconcile {
	return func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, err
	}
}

// until is a Reconcile that hangs until the end of its context.
func until(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
	<-ctx.Done()
	return controller.Result{}, ctx.Err()
}

func refuse(status func() error) func(*sim.Request) (*http.Response, error) {
	return func(r *sim.Request) (*http.Response, error) {
		if (r.Verb != "list" && r.Verb != "watch") || r.Resource.Resource != "configmaps" {
			return nil, nil
		}
		s, _ := status().(apierrors.APIStatus)
		return r.FailWith(s.Status())
	}
}

// apply applies a value in the ConfigMap, by force.
func (w *world) apply(ctx context.Context, by, value string) error {
	m := corev1ac.ConfigMap("web", "default").WithData(map[string]string{"value": value})
	_, err := client.For[*corev1.ConfigMap](w.mgr.Client()).Apply(ctx, m, client.FieldOwner(by))
	return err
}

// situation is one of the questions that people brought to public issues.
type situation struct {
	number string
	object why.Object // default: web
	happen func(w *world)
	reason why.Reason
	says   string // in the first line
}

func situations() []situation {
	start := func(change func(*world), then ...func(*world)) func(*world) {
		return func(w *world) {
			if change != nil {
				change(w)
			}
			w.start()
			w.put(site())
			for _, f := range then {
				f(w)
			}
		}
	}
	failing := func(err error) func(*world) {
		return start(func(w *world) { w.reconcile = fails(err) }, func(*world) { time.Sleep(time.Minute) })
	}
	return []situation{
		{"1 kind not watched", why.Object{Kind: "Deployment", Namespace: "default", Name: "web"}, start(nil), why.NotWatched, `no controller of this process watches the kind "Deployment"`},
		{"1 mapped to nothing", child, start(nil, func(w *world) {
			w.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "child"}})
			synctest.Wait()
		}), why.Unmapped, "it has no controlling owner of kind ConfigMap"},
		{"2 which event caused it", web, start(func(w *world) { w.reconcile = until }), why.Running, "a Reconcile runs since <1ms, as attempt 1, because of create of default/web"},
		{"2 which event caused the last one", web, start(nil, func(*world) { time.Sleep(time.Hour) }), why.Done, "the last Reconcile, because of create of default/web at version 2, succeeded 1h0m0s ago"},
		{"3 predicate drops the object", web, start(func(w *world) {
			w.predicates = []handler.Predicate{handler.Named("is a site", handler.Where(func(_, m *corev1.ConfigMap) bool { return m.Labels["site"] != "" }))}
		}), why.Dropped, `the predicate "is a site" of Kind(ConfigMap.v1) drops the object's events`},
		{"3 predicate dropped the last change", web, start(func(w *world) {
			w.predicates = []handler.Predicate{handler.LabelsChanged}
		}, func(w *world) {
			m := site()
			m.Data["value"] = "other"
			w.put(m)
		}), why.Dropped, `dropped the object's last change, to version `},
		{"3 predicate fails for a delete", web, start(func(w *world) {
			w.predicates = []handler.Predicate{handler.Where(func(_, m *corev1.ConfigMap) bool { return m.Labels["app"] != "" })}
		}, func(w *world) {
			w.api.Remove(sim.ConfigMaps, "default", "web")
			w.put(site())
			time.Sleep(time.Minute)
		}), why.HandlerFailed, "failed for an event of the object, which is retried in "},
		{"3 handler panics", web, start(func(w *world) {
			w.handler = handler.Map(func(_ context.Context, m *corev1.ConfigMap) ([]types.NamespacedName, error) { panic("no") })
		}), why.HandlerFailed, "panic: no"},
		{"3 handler hangs", web, start(func(w *world) {
			w.handler = handler.Map(func(ctx context.Context, m *corev1.ConfigMap) ([]types.NamespacedName, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}, func(*world) { time.Sleep(time.Minute) }), why.HandlerBlocked, "of Kind(ConfigMap.v1) does not return; later events of the source wait for it"},
		{"4 outside the namespaces", web, start(func(w *world) { w.scope.Namespaces = cache.NewSet("prod", "test") }), why.OutsideScope, "the cache keeps ConfigMap only of the namespaces prod, test"},
		{"4 outside the selector", web, start(func(w *world) { w.scope.Labels = labels.SelectorFromSet(labels.Set{"app": "shop"}) }), why.OutsideScope, `only ConfigMap with the labels "app=shop"; the object's label app has another value`},
		{"4 does not exist", why.Object{Kind: "configmaps", Namespace: "default", Name: "wbe"}, start(nil), why.NotFound, "there is no ConfigMap default/wbe at the API server"},
		{"5 no right", web, start(func(w *world) {
			w.api.Intercept(refuse(func() error { return apierrors.NewForbidden(maps, "", errors.New("no")) }))
		}), why.Forbidden, "the cache of ConfigMap cannot list or watch: "},
		{"6 kind not served", web, func(w *world) {
			w.api.Withdraw(sim.ConfigMaps)
			w.start()
		}, why.NotServed, "the API server does not serve ConfigMap.v1"},
		{"7 undecodable", web, func(w *world) {
			w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
				if r.Resource.Resource != "configmaps" || !r.Streaming() {
					return nil, nil
				}
				return r.SendAndHang(odd)
			})
			w.start()
		}, why.Undecodable, "the object does not fit its Go type: "},
		{"8 cache not synced", web, start(func(w *world) {
			w.api.Intercept(func(r *sim.Request) (*http.Response, error) {
				if r.Resource.Resource == "configmaps" && (r.Verb == "list" || r.Verb == "watch") {
					return r.Hang()
				}
				return nil, nil
			})
		}), why.NotSynced, "the cache of ConfigMap is in its initial list"},
		{"9 watch open but mute", web, start(nil, func(w *world) {
			w.api.Lag(time.Hour)
			m := site()
			m.Data["value"] = "other"
			w.put(m)
		}), why.Late, "but the watch has shown only version "},
		{"10 waits for its own write", web, start(func(w *world) {
			w.api.Lag(10 * time.Second)
			w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				m := site()
				m.Data = map[string]string{"a": "b"}
				_, err := client.For[*corev1.ConfigMap](w.mgr.Client()).Update(ctx, m)
				return controller.Result{RequeueAfter: time.Second}, err
			}
		}, func(*world) { time.Sleep(13 * time.Second) }), why.AwaitsOwnWrites, "the key waits until the caches show its own writes: "},
		{"11 backoff", web, failing(errFlaky), why.Error, "Reconciles failed, "},
		{"11 runs again after failures", web, start(func(w *world) {
			w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				if w.calls.Load()%4 == 0 {
					return until(ctx, key)
				}
				return controller.Result{}, errFlaky
			}
		}, func(*world) { time.Sleep(time.Second) }), why.Error, "the last 3 Reconciles failed; another one runs since "},
		{"12 RequeueAfter", web, start(func(w *world) {
			w.reconcile = func(context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{RequeueAfter: time.Hour}, nil
			}
		}), why.Scheduled, "the next Reconcile is due in 1h0m0s, as the last one asked"},
		{"13 behind others", why.Object{Kind: "ConfigMap", Namespace: "default", Name: "b"}, start(func(w *world) {
			w.reconcile = func(context.Context, types.NamespacedName) (controller.Result, error) {
				time.Sleep(time.Second)
				return controller.Result{}, nil
			}
		}, func(w *world) {
			for _, name := range []string{"a", "b"} {
				m := site()
				m.Name = name
				w.put(m)
			}
		}), why.Queued, "the key is ready, among 2; 1 of 1 workers are busy"},
		{"14 all workers busy", why.Object{Kind: "ConfigMap", Namespace: "default", Name: "b"}, start(func(w *world) { w.reconcile = until }, func(w *world) {
			m := site()
			m.Name = "b"
			w.put(m)
			time.Sleep(30 * time.Second)
		}), why.WorkersBusy, "all 1 workers are busy, longest with default/web, since 30s"},
		{"15 hangs in a call", web, start(func(w *world) { w.reconcile = until }, func(*world) { time.Sleep(2 * time.Minute) }), why.Slow, "a Reconcile hangs, or is slow: it runs since 2m0s, now in why_test.until (situations_test.go:"},
		{"15 runs for long", web, start(func(w *world) { w.reconcile = until }, func(*world) { time.Sleep(6 * time.Second) }), why.Running, "a Reconcile runs since 6s, as attempt 1, because of create of default/web, now in why_test.until (situations_test.go:"},
		{"16 paused by annotation", web, start(nil, func(w *world) {
			m := site()
			m.Annotations = map[string]string{controller.PausedAnnotation: "true"}
			w.put(m)
		}), why.Paused, "the key is paused by annotation setpoint.dev/paused of default/web"},
		{"16 paused as a whole", web, start(nil, func(w *world) {
			w.controller.Pause()
			m := site()
			m.Data["value"] = "other"
			w.put(m)
		}), why.Paused, "the controller is paused"},
		{"17 not the leader", web, func(w *world) {
			leader := newWorld(w.t)
			leader.api = w.api
			for name, of := range map[string]*world{"a": leader, "b": w} {
				of.manager.LeaderElection = &leaderelection.Options{Lease: "operator", Namespace: "default", Identity: name}
			}
			leader.start()
			time.Sleep(time.Second)
			w.start()
			w.put(site())
			time.Sleep(time.Minute)
		}, why.NotLeading, "this replica does not lead; a leads"},
		{"18 slot of another member", web, func(w *world) {
			other := newWorld(w.t)
			other.api = w.api
			for name, of := range map[string]*world{"a": other, "b": w} {
				of.manager.LeaderElection = &shard.Options{Election: leaderelection.Options{Lease: "operator", Namespace: "default", Identity: name}}
			}
			other.start()
			time.Sleep(time.Minute)
			w.start()
			w.put(site())
			time.Sleep(time.Minute)
			// One of them has the slot of web.
			if w.controller.Explain(w.t.Context(), web)[0].Reason != why.OtherMember {
				w.mgr = other.mgr
			}
		}, why.OtherMember, " serves slot "},
		{"19 terminal error", web, failing(controller.Terminal(errFlaky)), why.Terminal, "and is not retried: the registry is closed"},
		{"19 given up", web, start(func(w *world) { w.options.MaxAttempts, w.reconcile = 2, fails(errFlaky) }, func(*world) { time.Sleep(time.Minute) }), why.GaveUp, "and is not retried: the registry is closed"},
		{"22 hot loop by its own write", web, start(func(w *world) {
			w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				m, err := w.maps.Get(ctx, key)
				if err == nil {
					m.Data = map[string]string{"n": strconv.FormatInt(w.calls.Load(), 10)}
					_, err = client.For[*corev1.ConfigMap](w.mgr.Client()).Update(ctx, m)
				}
				return controller.Result{}, err
			}
		}, func(*world) { time.Sleep(time.Minute) }), why.HotLoop, "is slowed down to one Reconcile in 1s; each time it changes .data.n"},
		{"23 fight over a field", web, start(func(w *world) {
			w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, w.apply(ctx, "test", "mine")
			}
		}, func(w *world) {
			for range 500 {
				testkit.NoError(w.t, w.apply(w.t.Context(), "other", "theirs"))
				time.Sleep(100 * time.Millisecond)
			}
		}), why.Fight, "this controller and the field manager other overwrite .data.value of configmaps default/web in turn, "},
		{"23 fight while a Reconcile runs", web, start(func(w *world) {
			w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				err := w.apply(ctx, "test", "mine")
				time.Sleep(90 * time.Millisecond)
				return controller.Result{}, err
			}
		}, func(w *world) {
			for range 500 {
				testkit.NoError(w.t, w.apply(w.t.Context(), "other", "theirs"))
				time.Sleep(100 * time.Millisecond)
			}
			for w.controller.Report().Progress.Running == 0 {
				time.Sleep(time.Millisecond)
			}
		}), why.Fight, "; another one runs since "},
		{"24 conflict storm", web, start(func(w *world) {
			w.reconcile = func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
				m := site()
				m.ResourceVersion = "1"
				_, err := client.For[*corev1.ConfigMap](w.mgr.Client()).Update(ctx, m)
				return controller.Result{}, err
			}
		}, func(*world) { time.Sleep(time.Minute) }), why.Conflict, "Reconciles failed, "},
		{"25 throttled", web, failing(apierrors.NewTooManyRequests("slow down", 30)), why.Throttled, "slow down"},
		{"26 webhook refused the write", web, failing(apierrors.NewForbidden(maps, "web", errors.New(`no`))), why.Denied, "configmaps \"web\" is forbidden: no"},
		{"26 webhook is down", web, failing(apierrors.NewInternalError(errors.New(`failed calling webhook "x.example.com": timeout`))), why.Unavailable, `failed calling webhook "x.example.com"`},
		{"27 finalizer of another controller", web, start(nil, func(w *world) {
			m := site()
			m.Finalizers = []string{"example.com/other"}
			w.put(m)
			testkit.Equal(w.t, client.For[*corev1.ConfigMap](w.mgr.Client()).Delete(w.t.Context(), types.NamespacedName{Namespace: "default", Name: "web"}), nil)
			synctest.Wait()
		}), why.Terminating, "waits for its finalizers example.com/other"},
		{"20 succeeded and did nothing", web, start(nil), why.Done, "succeeded <1ms ago, wrote nothing and"},
		{"20 succeeded without an effect", web, start(func(w *world) {
			w.reconcile = func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				m, err := w.maps.Get(ctx, key)
				if err == nil {
					_, err = client.For[*corev1.ConfigMap](w.mgr.Client()).Update(ctx, m)
				}
				return controller.Result{}, err
			}
		}), why.Done, "wrote update configmaps default/web (unchanged"},
		{"21 forgot to requeue", web, start(nil), why.Done, "asked for no other; nothing is due until the next event"},
		{"28 status older than the spec", why.Object{Kind: "deployments", Namespace: "default", Name: "web"}, func(w *world) {
			w.api.Serve(sim.Deployments)
			d := &appsv1.Deployment{ObjectMeta: site().ObjectMeta, Status: appsv1.DeploymentStatus{ObservedGeneration: 1}}
			w.api.Put(sim.Deployments, d)
			d.Spec.Replicas = new(int32(2))
			w.api.Put(sim.Deployments, d)
			w.add = func() {
				c := controller.New("deploy", w.reconcile, controller.Options{})
				c.Watch(source.Kind(cache.For[*appsv1.Deployment](w.mgr.Cache()), handler.Self()))
				w.mgr.Add(c)
			}
			w.start()
		}, why.StatusOld, "the status is of generation 1, the spec of 2; the last Reconcile"},
	}
}

// odd is a list with a ConfigMap that Go cannot decode.
const odd = `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"web","uid":"1","resourceVersion":"2"},"data":{"value":5}}}
{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"2","annotations":{"k8s.io/initial-events-end":"true"}}}}
`

// TestSituations: the first line has the true cause, in each situation that people brought to
// public issues.
func TestSituations(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.number, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s.happen(w)
				got := why.For(t.Context(), s.object, w.mgr)
				text := got.String()
				t.Log("\n" + text)
				first, _, _ := strings.Cut(text, "\n")
				testkit.Equal(t, got.Answers[0].Reason, s.reason)
				testkit.Contains(t, first, s.says)
				testkit.NotContains(t, text, "confidential", "the answer has a value of the object")
			})
		})
	}
}

// TestSituations_Values: with values, hot loops and fights are shown with them.
func TestSituations_Values(t *testing.T) {
	want := map[string]string{
		"22 hot loop by its own write": `.data.n: its last write changed "1`,
		"23 fight over a field":        `.data.value: this controller wrote "mine", and the cache has "theirs"`,
	}
	for _, s := range situations() {
		if want[s.number] == "" {
			continue
		}
		t.Run(s.number, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s.happen(w)
				o := s.object
				o.Values = true
				if text := why.For(t.Context(), o, w.mgr).String(); !strings.Contains(text, want[s.number]) {
					t.Errorf("the answer lacks %s:\n%s", want[s.number], text)
				}
			})
		})
	}
}

// restarted has the reasons right after a restart, where they differ: what caused the situation is
// gone, or has lasted for too short a time.
var restarted = map[string][]why.Reason{
	"3 predicate dropped the last change": {why.Done}, // it is reconciled after every start
	"3 predicate fails for a delete":      {why.Done},
	"9 watch open but mute":               {why.Done}, // there is a new list
	"10 waits for its own write":          {why.Scheduled},
	"13 behind others":                    {why.Queued, why.Running}, // either is first
	"14 all workers busy":                 {why.Running, why.Queued}, // either is first
	"15 hangs in a call":                  {why.Running},
	"16 paused as a whole":                {why.Done},
	"19 given up":                         {why.Error},
	"23 fight over a field":               {why.Done},
	"23 fight while a Reconcile runs":     {why.Done, why.Running},
	"11 runs again after failures":        {why.Error, why.Running},
}

// TestSituations_Restart: right after a restart the answer is true for the new process, and names
// what it does not know any more.
func TestSituations_Restart(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.number, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s.happen(w)
				w.stop()
				w.start()
				got := why.For(t.Context(), s.object, w.mgr)
				text := got.String()
				t.Log("\n" + text)
				want := restarted[s.number]
				if want == nil {
					want = []why.Reason{s.reason}
				}
				if !slices.Contains(want, got.Answers[0].Reason) {
					t.Errorf("got the reason %s, want %s", got.Answers[0].Reason, want)
				}
				if first := got.Answers[0]; first.Key != "" && !strings.Contains(text, "Reconcile until") && !strings.Contains(text, "no Reconcile of the key since the start of this process at ") {
					t.Errorf("the answer does not name what is not known any more")
				}
			})
		})
	}
}
