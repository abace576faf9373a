// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// moving is a controller of one Deployment whose generation changes.
type moving struct {
	*controller.Controller[types.NamespacedName]
	api    *sim.Server
	client *client.Client
	deploy *appsv1.Deployment
	ended  outcomes
	seen   []string // the attempt, and the cause of its context's end
}

// workload is a valid Deployment.
func workload(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: named(name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c:1"}}},
		},
	}}
}

func newMoving(t *testing.T, o controller.Options, work func(m *moving, ctx context.Context) error, predicates ...handler.Predicate) *moving {
	t.Helper()
	api, all := cluster(t, sim.Deployments)
	m := &moving{api: api, deploy: workload("a")}
	var err error
	m.client, err = client.New(api.Config(), client.Options{})
	testkit.NoError(t, err)
	m.replicas(1)
	o.Logger, o.Hook = silent, m.ended.hooks()
	m.Controller = controller.New("test", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		look, _ := m.Queue().Lookup(key)
		err := work(m, ctx)
		m.seen = append(m.seen, fmt.Sprintf("%d: %v", look.Attempts+1, context.Cause(ctx)))
		return controller.Result{}, err
	}), o)
	m.Watch(source.Kind(cache.For[*appsv1.Deployment](all), handler.Self(), predicates...))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		ok(t, <-ended)
	})
	return m
}

// replicas changes the generation as another client.
func (m *moving) replicas(n int32) {
	synctest.Wait() // caches have the change
	m.deploy.Spec.Replicas = &n
	m.api.Put(sim.Deployments, m.deploy)
}

// minute takes a minute unless its context ends.
func minute(_ *moving, ctx context.Context) error {
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *moving) want(t *testing.T, outcomes, seen string) {
	t.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	testkit.Equal(t, fmt.Sprint(m.ended.list()), outcomes, "ended as")
	testkit.Equal(t, fmt.Sprintf("%q", m.seen), seen)
	testkit.Equal(t, m.Counted(), 0, "keys whose interrupts are still counted")
}

// TestC12_Interrupt: a change of the object cancels its Reconcile with a cause and reconciles the
// key again, within the limit in a row. It is no failure.
func TestC12_Interrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var causes []error
		// The predicate does not hide the changes.
		m := newMoving(t, controller.Options{MaxInterrupts: 2}, func(m *moving, ctx context.Context) error {
			err := minute(m, ctx)
			causes = append(causes, context.Cause(ctx))
			return err
		}, handler.Where(func(before, _ *appsv1.Deployment) bool { return before == nil }))
		for n := range int32(5) {
			time.Sleep(10 * time.Second)
			m.replicas(10 + n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := m.Snapshot(); len(s.Running) != 1 || s.Running[0].Interrupted != 2 || s.Running[0].Attempt != 1 {
			t.Errorf("running: %+v", s.Running)
		}
		m.want(t, "[interrupted interrupted success]",
			`["1: default/a changed to generation 2, at version 3" "1: default/a changed to generation 3, at version 4" "1: <nil>"]`)
		var i *controller.InterruptedError
		if len(causes) != 3 || !errors.As(causes[0], &i) || i.Object != "default/a" || i.Generation != 2 || i.ResourceVersion != "3" || !errors.Is(causes[0], context.Canceled) {
			t.Errorf("the causes are %#v", causes)
		}
	})
}

// TestC12_CountsAnew: a finished Reconcile resets the count.
func TestC12_CountsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, controller.Options{MaxInterrupts: 1}, minute)
		for n := range int32(2) {
			time.Sleep(10 * time.Second)
			m.replicas(10 + n)
			time.Sleep(10 * time.Second)
			m.replicas(20 + n) // the limit is used up
			time.Sleep(50 * time.Second)
		}
		m.want(t, "[interrupted success interrupted success success]", fmt.Sprintf("%q", []string{
			"1: default/a changed to generation 2, at version 3", "1: <nil>",
			"1: default/a changed to generation 4, at version 5", "1: <nil>", "1: <nil>",
		}))
	})
}

// TestC12_Off is the default.
func TestC12_Off(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, controller.Options{}, minute)
		time.Sleep(10 * time.Second)
		m.replicas(2)
		m.want(t, "[success success]", `["1: <nil>" "1: <nil>"]`)
	})
}

// TestC12_OnlyForTheGeneration: other changes and pauses let it finish.
func TestC12_OnlyForTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, controller.Options{MaxInterrupts: 1}, minute)
		time.Sleep(10 * time.Second)
		m.deploy.Status.Replicas = 1
		m.deploy.Labels = map[string]string{"x": "y"}
		m.api.Put(sim.Deployments, m.deploy)
		time.Sleep(10 * time.Second)
		m.deploy.Annotations = map[string]string{controller.PausedAnnotation: ""}
		m.replicas(2) // at once
		time.Sleep(10 * time.Minute)
		m.deploy.Annotations = nil
		m.replicas(2)
		m.want(t, "[success success]", `["1: <nil>" "1: <nil>"]`)
	})
}

// TestC12_NotByOwnWrites: nor when the author is in doubt.
func TestC12_NotByOwnWrites(t *testing.T) {
	update := func(m *moving, ctx context.Context, n int32) error {
		d := m.deploy.DeepCopy()
		d.Spec.Replicas = &n
		_, err := client.For[*appsv1.Deployment](m.client).Update(ctx, d)
		return err
	}
	synctest.Test(t, func(t *testing.T) { // the answer comes before the event
		first := true
		m := newMoving(t, controller.Options{MaxInterrupts: 5}, func(m *moving, ctx context.Context) error {
			if first {
				first = false
				m.api.Lag(time.Second)
				ok(t, update(m, ctx, 7))
			}
			return minute(m, ctx)
		})
		m.want(t, "[success success]", `["1: <nil>" "1: <nil>"]`)
	})
	synctest.Test(t, func(t *testing.T) { // the event comes before the answer
		first := true
		m := newMoving(t, controller.Options{MaxInterrupts: 5}, func(m *moving, ctx context.Context) error {
			if first {
				first = false
				m.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb != "update" {
						return nil, nil
					}
					m.api.Intercept(nil)
					answer, err := r.Forward(m.api)
					time.Sleep(900 * time.Millisecond)
					return answer, err
				})
				ok(t, update(m, ctx, 7))
			}
			return minute(m, ctx)
		})
		m.want(t, "[success success]", `["1: <nil>" "1: <nil>"]`)
	})
	synctest.Test(t, func(t *testing.T) { // another client's write after it interrupts
		first := true
		m := newMoving(t, controller.Options{MaxInterrupts: 5}, func(m *moving, ctx context.Context) error {
			if first {
				first = false
				ok(t, update(m, ctx, 7))
			}
			return minute(m, ctx)
		})
		time.Sleep(10 * time.Second)
		m.replicas(8)
		m.want(t, "[interrupted success]", `["1: default/a changed to generation 3, at version 4" "1: <nil>"]`)
	})
}

// TestC12_WhileOwnWritesHaveNoAnswer: another client's change also interrupts while a write of the
// key is under way or its answer is lost. The key's own change does only if its answer is lost or
// late.
func TestC12_WhileOwnWritesHaveNoAnswer(t *testing.T) {
	const (
		none = time.Duration(iota) // the answer is lost at once
		soon = 900 * time.Millisecond
		late = time.Hour
	)
	for _, c := range []struct {
		name       string
		carriedOut bool
		answer     time.Duration // the delay of the answer
		patch      string        // instead of an update of the replicas
		other      bool          // another client changes the replicas
		itself     bool          // the key's own change interrupts it
		next       bool          // in the next Reconcile
		within     time.Duration // of the interruption, or 0 if there is none
	}{
		{name: "own change, then the answer", carriedOut: true, answer: soon},
		{name: "own change that the request does not show, then the answer", carriedOut: true, answer: soon, patch: `[{"op":"copy","from":"/spec/replicas","path":"/spec/minReadySeconds"}]`},
		{name: "own change without an answer", carriedOut: true, answer: none, itself: true},
		{name: "own patch without an answer", carriedOut: true, answer: none, patch: `{"spec":{"replicas":7}}`, itself: true},
		{name: "own change, under way for long", carriedOut: true, answer: late, itself: true},
		{name: "not carried out, without an answer", answer: none, other: true, within: time.Millisecond},
		{name: "not carried out, under way", answer: late, other: true, within: 1001 * time.Millisecond},
		{name: "patch not carried out, under way", answer: late, patch: `{"spec":{"paused":true}}`, other: true, within: 1001 * time.Millisecond},
		{name: "not carried out, without an answer, by the Reconcile before", answer: none, other: true, next: true, within: time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changed, ended time.Time
				first := true
				m := newMoving(t, controller.Options{MaxInterrupts: 5}, func(m *moving, ctx context.Context) error {
					if !first {
						err := minute(m, ctx)
						if ended.IsZero() && err != nil {
							ended = time.Now()
						}
						return err
					}
					first = false
					m.api.Intercept(func(r *sim.Request) (*http.Response, error) {
						if r.Verb != "update" && r.Verb != "patch" {
							return nil, nil
						}
						m.api.Intercept(nil)
						var answer *http.Response
						if c.carriedOut {
							var err error
							answer, err = r.Forward(m.api)
							ok(t, err)
						}
						switch time.Sleep(c.answer % time.Hour); c.answer {
						case late:
							return r.Hang()
						case soon:
							return answer, nil
						}
						return r.Fail(http.StatusGatewayTimeout, "no answer")
					})
					all := client.For[*appsv1.Deployment](m.client)
					var err error
					if c.patch != "" {
						patchType := types.MergePatchType
						if c.patch[0] == '[' {
							patchType = types.JSONPatchType
						}
						_, err = all.Patch(ctx, types.NamespacedName{Namespace: "default", Name: "a"}, patchType, []byte(c.patch))
					} else {
						d := m.deploy.DeepCopy()
						seven := int32(7)
						d.Spec.Replicas = &seven
						_, err = all.Update(ctx, d)
					}
					if c.next {
						return errors.New("its answer was lost")
					}
					if c.answer == soon {
						ok(t, err)
					}
					if err = minute(m, ctx); err != nil {
						ended = time.Now()
					}
					return err
				})
				time.Sleep(20 * time.Second)
				if c.other {
					m.replicas(8)
					changed = time.Now()
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				got := fmt.Sprint(m.ended.list())
				want := "[success success]" // the event of the key's own change makes it due
				switch {
				case c.next:
					want = "[error interrupted success]"
				case c.within > 0, c.itself:
					want = "[interrupted success]"
				}
				testkit.Equal(t, got, want, "ended as", m.seen)
				if took := ended.Sub(changed); c.within > 0 && took > c.within {
					t.Errorf("interrupted after %s", took)
				}
			})
		})
	}
}

// TestC12_AChildWithTheSameName: the deletion of a child does not hide that another client deletes
// the key's object, whatever became of the request.
func TestC12_AChildWithTheSameName(t *testing.T) {
	for name, answer := range map[string]func(*sim.Request) (*http.Response, error){
		"answered":       nil,
		"under way":      func(r *sim.Request) (*http.Response, error) { return r.Hang() },
		"without answer": func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusGatewayTimeout, "no answer") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var causes []error
				m := newMoving(t, controller.Options{MaxInterrupts: 2}, func(m *moving, ctx context.Context) error {
					time.Sleep(time.Second)
					var all sync.WaitGroup
					defer all.Wait()
					all.Go(func() {
						_ = client.For[*corev1.Secret](m.client).Delete(ctx, types.NamespacedName{Namespace: "default", Name: "a"})
					})
					err := minute(m, ctx)
					causes = append(causes, context.Cause(ctx))
					return err
				})
				m.api.Serve(sim.Secrets)
				m.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("a")})
				m.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb != "delete" || r.Resource.Resource != "secrets" || answer == nil {
						return nil, nil
					}
					return answer(r)
				})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				m.deploy.Finalizers = []string{"x.dev/a"}
				m.api.Put(sim.Deployments, m.deploy)
				ok(t, client.For[*appsv1.Deployment](m.client).Delete(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(causes) != 1 || !errors.As(causes[0], new(*controller.InterruptedError)) {
					t.Errorf("the causes are %v", causes)
				}
			})
		})
	}
}

// TestC12_NotByTheLastWrite: the last Reconcile's event may come after the next one's start.
func TestC12_NotByTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		m := newMoving(t, controller.Options{MaxInterrupts: 5, ReadYourWrites: -1}, func(m *moving, ctx context.Context) error {
			if first {
				first = false
				m.api.Lag(time.Second)
				n := int32(7)
				d := m.deploy.DeepCopy()
				d.Spec.Replicas = &n
				_, err := client.For[*appsv1.Deployment](m.client).Update(ctx, d)
				m.Requeue(types.NamespacedName{Namespace: "default", Name: "a"})
				return err
			}
			return minute(m, ctx)
		})
		m.want(t, "[success success success]", `["1: <nil>" "1: <nil>" "1: <nil>"]`)
	})
}

// TestC12_AndDeadline: the first of both is the cause.
func TestC12_AndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t, controller.Options{MaxInterrupts: 1, Deadline: 30 * time.Second, SlowAfter: -1}, minute)
		time.Sleep(10 * time.Second)
		m.replicas(2)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := m.ended.list(); len(got) != 2 || got[0] != hook.Interrupted || got[1] != hook.Failed {
			t.Errorf("ended as %v", got)
		}
		testkit.Equal(t, m.Counted(), 0, "keys are counted after one has failed by itself")
		m.Pause()
	})
}
