// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// rig is a controller of ConfigMaps that writes Secrets, on an API server in memory with lagging
// watches.
type rig struct {
	t          *testing.T
	api        *sim.Server
	client     *client.Client
	maps       *cache.Handle[*corev1.ConfigMap]
	secrets    *cache.Handle[*corev1.Secret]
	control    *controller.Controller[types.NamespacedName]
	predicates []handler.Predicate
	began      time.Time

	mu      sync.Mutex // guards what follows
	steps   []func(ctx context.Context, key types.NamespacedName) (controller.Result, error)
	at      []time.Duration
	keys    []string
	stale   []error
	awaited []hook.Awaited
	ends    []hook.Outcome
	taken   []hook.Takeover
}

const lag = 500 * time.Millisecond

// newRig returns a rig whose n-th Reconcile of the key "a" is the n-th step. All others do nothing.
func newRig(t *testing.T, o controller.Options, q workqueue.Options[types.NamespacedName], predicates []handler.Predicate, steps ...func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error)) *rig {
	t.Helper()
	r := &rig{t: t, predicates: predicates}
	var all *cache.Cache
	r.api, all = cluster(t, sim.ConfigMaps, sim.Secrets)
	var err error
	r.client, err = client.New(r.api.Config(), client.Options{})
	testkit.NoError(t, err)
	r.maps, r.secrets = cache.For[*corev1.ConfigMap](all), cache.For[*corev1.Secret](all)
	for _, step := range steps {
		r.steps = append(r.steps, func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			return step(r, ctx, key)
		})
	}
	if o.Logger == nil {
		o.Logger = silent
	}
	o.Hook = hook.Join(
		hook.On(func(a *hook.Awaited) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.awaited = append(r.awaited, *a)
		}),
		hook.On(func(e *hook.Takeover) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.taken = append(r.taken, *e)
		}),
		hook.On(func(e *hook.Reconciled) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ends = append(r.ends, e.Outcome)
		}),
	)
	r.control = controller.NewWithQueue("test", controller.Func[types.NamespacedName](r.reconcile), o, q)
	r.control.Watch(source.Kind(r.maps, handler.Self(), predicates...))
	r.control.Reads(r.secrets)
	r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a")})
	return r
}

// start runs the rig until the test ends.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	synctest.Wait() // the cache is synced
	ended := make(chan error, 1)
	r.began = time.Now()
	r.api.Lag(lag)
	go func() { ended <- r.control.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		ok(r.t, <-ended)
	})
}

func (r *rig) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	r.mu.Lock()
	r.at = append(r.at, time.Since(r.began))
	r.keys = append(r.keys, key.Name)
	r.stale = append(r.stale, controller.Stale(ctx))
	var step func(ctx context.Context, key types.NamespacedName) (controller.Result, error)
	if key.Name == "a" && len(r.steps) > 0 {
		step, r.steps = r.steps[0], r.steps[1:]
	}
	r.mu.Unlock()
	if step == nil {
		return controller.Result{}, nil
	}
	return step(ctx, key)
}

// after waits, and returns when the key a was reconciled.
func (r *rig) after(d time.Duration) (at []time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, key := range r.keys {
		if key == "a" {
			at = append(at, r.at[i])
		}
	}
	return at
}

func (r *rig) want(got []time.Duration, want ...time.Duration) {
	r.t.Helper()
	testkit.SlicesEqual(r.t, got, want, "reconciled at")
}

func (r *rig) secret() *client.Handle[*corev1.Secret] { return client.For[*corev1.Secret](r.client) }

func (r *rig) update(ctx context.Context, m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return client.For[*corev1.ConfigMap](r.client).Update(ctx, m)
}

func (r *rig) delete(ctx context.Context, key types.NamespacedName) error {
	return client.For[*corev1.ConfigMap](r.client).Delete(ctx, key)
}

// createSecret is a step.
func createSecret(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
	return controller.Result{RequeueAfter: time.Millisecond}, err
}

// seeSecret is a step that requires the Secret in the cache.
func seeSecret(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	testkit.Equal(r.t, testkit.Err(r.secrets.Get(ctx, key)), nil, "own write is not seen")
	return controller.Result{}, nil
}

// TestC6_KeyWaitsForItsWrites: a due key waits until the informer shows its writes. The snapshot
// has the reason, the worker is free, and the key keeps the reasons for which it was due.
func TestC6_KeyWaitsForItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, createSecret, seeSecret)
		r.start()
		r.want(r.after(100*time.Millisecond), 0)
		look, _ := r.control.Queue().Lookup(types.NamespacedName{Namespace: "default", Name: "a"})
		testkit.Equal(t, look.State, workqueue.Parked)
		testkit.Contains(t, look.ParkReason, "Secret.v1")
		testkit.Contains(t, look.ParkReason, "default/a")
		if len(look.Reasons) == 0 || look.Reasons[0].Event != workqueue.EventAfter {
			t.Errorf("it waits without the reason for which it was due: %+v", look.Reasons)
		}
		r.control.Queue().Add(types.NamespacedName{Namespace: "default", Name: "b"})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		r.mu.Lock()
		if !slices.Contains(r.keys, "b") {
			t.Error("another key waits, too")
		}
		r.mu.Unlock()
		r.want(r.after(time.Minute), 0, lag)
		if len(r.awaited) != 1 || r.awaited[0].Took != lag-time.Millisecond || r.awaited[0].Expired || r.awaited[0].Doubts != nil {
			t.Errorf("the hook was told %+v", r.awaited)
		}
		if slices.ContainsFunc(r.stale, func(err error) bool { return err != nil }) {
			t.Errorf("stale: %v", r.stale)
		}
	})
}

// TestC6_DeleteAndRecreate: a name that was deleted and created again is visible when the new
// object is.
func TestC6_DeleteAndRecreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var uid types.UID
		again := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			ok(t, r.secret().Delete(ctx, key))
			s, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
			ok(t, err)
			uid = s.UID
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		see := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if s, err := r.secrets.Get(ctx, key); err != nil || s.UID != uid {
				t.Errorf("the cache has %v, %v, want the object %s", s, err, uid)
			}
			return controller.Result{}, nil
		}
		gone := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			see(r, ctx, key)
			ok(t, r.secret().Delete(ctx, key))
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		missing := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			testkit.ErrorSatisfies(t, testkit.Err(r.secrets.Get(ctx, key)), apierrors.IsNotFound, "the cache still has it")
			return controller.Result{}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, createSecret, again, gone, missing)
		r.start()
		r.want(r.after(time.Minute), 0, lag, 2*lag, 3*lag)
	})
}

// TestC6_Bound: the wait ends after the bound. Stale names what is missing for as long as it is
// missing, and the hook gets it. The key still waits for its other writes.
func TestC6_Bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		create := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			r.api.Lag(time.Hour)
			return createSecret(r, ctx, key)
		}
		later := func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: time.Second}, nil
		}
		caughtUp := func(r *rig, _ context.Context, _ types.NamespacedName) (controller.Result, error) {
			r.api.Lag(0)
			r.api.CutWatches()
			return controller.Result{RequeueAfter: time.Second}, nil
		}
		var lines testkit.Buffer
		o := controller.Options{ReadYourWrites: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&lines, nil))}
		r := newRig(t, o, workqueue.Options[types.NamespacedName]{}, nil, create, later, caughtUp)
		r.start()
		ms := time.Millisecond
		r.want(r.after(time.Minute), 0, 10*time.Second+ms, 11*time.Second+ms, 12*time.Second+ms)
		if len(r.awaited) != 1 || !r.awaited[0].Expired || r.awaited[0].Took != 10*time.Second {
			t.Errorf("the hook was told %+v", r.awaited)
		}
		for i, stale := range r.stale {
			missing := i == 1 || i == 2
			if missing != (stale != nil) || missing && strings.Count(stale.Error(), "default/a") != 1 {
				t.Errorf("stale in Reconcile %d: %v", i, stale)
			}
		}
		testkit.Equal(t, r.control.Remembered(), 0)
	})
}

// TestC6_TheLogSaysSo once for each key that has waited in vain.
func TestC6_TheLogSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		var steps []func(*rig, context.Context, types.NamespacedName) (controller.Result, error)
		for range 20 {
			steps = append(steps, func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				r.api.Lag(time.Hour)
				_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "s-"}})
				return controller.Result{RequeueAfter: time.Millisecond}, err
			})
		}
		r := newRig(t, controller.Options{ReadYourWrites: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&lines, nil))}, workqueue.Options[types.NamespacedName]{}, nil, steps...)
		r.start()
		r.after(time.Minute)
		const line = `level=WARN msg="reconciled before its own writes were visible in the cache" controller=test key=default/a`
		testkit.Count(t, lines.String(), line, 10)
	})
}

// TestC6_ALostAnswerIsNotRepeated: the answer to a create with generateName is lost and the caches
// lag. A Reconcile that returns Stale's error does not create it twice, and the log has no error.
func TestC6_ALostAnswerIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testkit.Buffer
		create := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			if err := controller.Stale(ctx); err != nil {
				return controller.Result{}, err
			}
			for _, err := range r.secrets.All(ctx, cache.ListOptions{}) {
				return controller.Result{}, err
			}
			lost := false
			r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
				if q.Verb != "create" || lost {
					return nil, nil
				}
				lost = true
				resp, err := q.Forward(r.api)
				ok(t, err)
				resp.Body.Close()
				return q.Fail(http.StatusGatewayTimeout, "no answer")
			})
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "s-"}})
			return controller.Result{}, err
		}
		steps := slices.Repeat([]func(*rig, context.Context, types.NamespacedName) (controller.Result, error){create}, 100)
		r := newRig(t, controller.Options{Logger: slog.New(slog.NewTextHandler(&lines, nil))}, workqueue.Options[types.NamespacedName]{}, nil, steps...)
		r.start()
		r.api.Lag(5 * time.Second) // the watch does not show it yet when the API server is asked
		r.after(5 * time.Minute)
		testkit.Equal(t, r.api.Count("create", sim.Secrets), 2) // and the intercepted one
		testkit.Count(t, lines.String(), "level=ERROR", 1)
	})
}

// leaveBehind returns a step that creates the Secret in a goroutine, and returns before the answer.
func leaveBehind(left *sync.WaitGroup, takes time.Duration) func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
	return func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		held := make(chan struct{})
		r.api.Intercept(func(q *sim.Request) (*http.Response, error) {
			if q.Verb == "create" {
				close(held)
				time.Sleep(takes)
			}
			return nil, nil
		})
		left.Go(func() {
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
			ok(r.t, err)
		})
		<-held
		return controller.Result{RequeueAfter: time.Millisecond}, nil
	}
}

// TestC6_UnansweredWrite: the next Reconcile sees a write that was in flight when the last one
// returned.
func TestC6_UnansweredWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left sync.WaitGroup
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, leaveBehind(&left, 2*time.Second), seeSecret)
		r.start()
		at := r.after(time.Minute)
		left.Wait()
		if len(at) != 2 || at[1] < 2*time.Second+lag || at[1] > 5*time.Second {
			t.Errorf("reconciled at %v, want the second after the write is shown", at)
		}
	})
}

// TestC6_SwitchedOff: with a negative bound keys do not wait.
func TestC6_SwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blind := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			testkit.ErrorSatisfies(t, testkit.Err(r.secrets.Get(ctx, key)), apierrors.IsNotFound, fmt.Sprintf("the cache lags by %s and has it", lag))
			return controller.Result{}, nil
		}
		r := newRig(t, controller.Options{ReadYourWrites: -1}, workqueue.Options[types.NamespacedName]{}, nil, createSecret, blind)
		r.start()
		r.want(r.after(time.Minute), 0, time.Millisecond)
		if len(r.awaited) > 0 || r.stale[1] != nil {
			t.Errorf("the hook was told %+v; stale: %v", r.awaited, r.stale[1])
		}
	})
}

// TestC6_WakesByRelist: the key waits for a relist if an object was created and deleted between two
// lists.
func TestC6_WakesByRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		churn := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			r.api.Lag(time.Hour)
			s, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
			ok(t, err)
			ok(t, r.secret().Delete(ctx, key, client.Preconditions(s.UID, "")))
			time.AfterFunc(3*time.Second, func() {
				r.api.Expire()
				r.api.Lag(0)
				r.api.CutWatches()
			})
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, churn)
		r.start()
		at := r.after(time.Minute)
		if len(at) != 2 || at[1] < 3*time.Second || at[1] > 10*time.Second {
			t.Errorf("reconciled at %v, want the second soon after the list", at)
		}
		if len(r.awaited) != 1 || r.awaited[0].Expired {
			t.Errorf("the hook was told %+v", r.awaited)
		}
	})
}

// TestC6_LeavesNothingBehind: keys that write and are never due again are forgotten.
func TestC6_LeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil)
		r.control = controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)})
			return controller.Result{}, err
		}), controller.Options{Logger: silent})
		r.control.Reads(r.secrets)
		r.start()
		for i := range 5000 {
			r.control.Queue().Add(types.NamespacedName{Namespace: "default", Name: "k" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))})
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.AtMost(t, r.control.Remembered(), 1000)
	})
}

// TestC6_WithClientGosFakes: they have no transport, so there is no ledger and no wait. Everything
// else works.
func TestC6_WithClientGosFakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: named("a")})
		all := cache.New(nil, cache.Options{})
		made := factory.New(all, clientset)
		objects := cache.Adopt[*corev1.ConfigMap](all, made.Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
		var mu sync.Mutex
		var seen []string
		c := controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			m, err := objects.Get(ctx, key)
			if err != nil {
				return controller.Result{}, err
			}
			mu.Lock()
			seen = append(seen, m.Data["by"])
			mu.Unlock()
			if m.Data == nil {
				m.Data = map[string]string{"by": "us"}
				_, err = clientset.CoreV1().ConfigMaps(key.Namespace).Update(ctx, m, metav1.UpdateOptions{})
			}
			return controller.Result{}, err
		}), controller.Options{Logger: silent})
		c.Watch(source.Kind(objects, handler.Self()))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { ok(t, all.Run(ctx)) })
		running.Go(func() { ok(t, c.Run(ctx)) })
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		testkit.SlicesEqual(t, seen, []string{"", "us"}, "it saw")
		mu.Unlock()
		cancel()
		running.Wait()
	})
}

// TestC6_AbsentBeforeAndAfter: an object that was created and deleted does not count as gone before
// it has come.
func TestC6_AbsentBeforeAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := createSecret(r, ctx, key)
			ok(t, err)
			time.Sleep(lag / 2) // so that the events come in two parts
			ok(t, r.secret().Delete(ctx, key))
			return controller.Result{RequeueAfter: time.Millisecond}, nil
		}
		gone := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			testkit.ErrorSatisfies(t, testkit.Err(r.secrets.Get(ctx, key)), apierrors.IsNotFound, "the cache has what was deleted")
			return controller.Result{}, nil
		}
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil, both, gone)
		r.start()
		r.want(r.after(time.Minute), 0, lag/2+lag)
	})
}

// TestC6_NothingToRemember: a refused write, a dry run and unawaited writes leave nothing behind.
func TestC6_NothingToRemember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(key.Name)}, client.DryRun())
			ok(t, err)
			testkit.ErrorSatisfies(t, r.secret().Delete(ctx, types.NamespacedName{Namespace: "default", Name: "missing"}), apierrors.IsNotFound)
			return controller.Result{}, nil
		}
		for _, o := range []controller.Options{{}, {ReadYourWrites: -1}} {
			steps := []func(*rig, context.Context, types.NamespacedName) (controller.Result, error){refused}
			if o.ReadYourWrites < 0 {
				steps = append(steps, createSecret)
			}
			r := newRig(t, o, workqueue.Options[types.NamespacedName]{}, nil, steps...)
			r.start()
			r.after(time.Minute)
			testkit.Equal(t, r.control.Remembered(), 0, o)
		}
	})
}
