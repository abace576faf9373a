// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/source"
)

// fighter is a controller that wants one value in a ConfigMap.
type fighter struct {
	t      *testing.T
	client *client.Client
	maps   *cache.Handle[*corev1.ConfigMap]
	write  func(ctx context.Context, f *fighter, key types.NamespacedName) error

	control *controller.Controller[types.NamespacedName]

	mu     sync.Mutex
	starts []time.Duration
	fights []hook.Fight
}

func newFighter(t *testing.T, api http.RoundTripper, manager string, scope cache.Scope, write func(context.Context, *fighter, types.NamespacedName) error) *fighter {
	t.Helper()
	cl, err := client.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, client.Options{FieldOwner: manager})
	testkit.NoError(t, err)
	objects := cache.New(cl, cache.Options{})
	f := &fighter{t: t, client: cl, maps: cache.ForScope[*corev1.ConfigMap](objects, scope), write: write}
	began := time.Now()
	c := controller.New(manager, controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		f.mu.Lock()
		f.starts = append(f.starts, time.Since(began))
		f.mu.Unlock()
		return controller.Result{}, f.write(ctx, f, key)
	}), controller.Options{Logger: silent, Hook: hook.On(func(e *hook.Fight) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.fights = append(f.fights, *e)
	})})
	f.control = c
	c.Watch(source.Kind(f.maps, handler.Self()))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- objects.Run(ctx) }()
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		ok(t, errors.Join(<-done, <-done))
	})
	return f
}

// applies forces a value by server-side apply.
func applies(value string) func(context.Context, *fighter, types.NamespacedName) error {
	return func(ctx context.Context, f *fighter, key types.NamespacedName) error {
		m, err := f.maps.Get(ctx, key)
		if err != nil || m.Data["value"] == value {
			return err
		}
		_, err = client.For[*corev1.ConfigMap](f.client).Apply(ctx, corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"value": value}))
		return err
	}
}

// updates writes a value with the version that it has read.
func updates(value string) func(context.Context, *fighter, types.NamespacedName) error {
	return func(ctx context.Context, f *fighter, key types.NamespacedName) error {
		m, err := f.maps.Get(ctx, key)
		if err != nil || m.Data["value"] == value {
			return err
		}
		m.Data["value"] = value
		if _, err = client.For[*corev1.ConfigMap](f.client).Update(ctx, m); apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
}

func fought() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"value": "?", "other": "1"}}
}

func (f *fighter) n() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.starts)
}

// TestC14_AFightIsSlowedDown: two controllers that overwrite a field of each other make two writes
// a second at most, and each reports the field and the other one.
func TestC14_AFightIsSlowedDown(t *testing.T) {
	for name, write := range map[string]func(string) func(context.Context, *fighter, types.NamespacedName) error{"apply": applies, "update": updates} {
		for form, scope := range map[string]cache.Scope{
			"packed": {Storage: cache.Packed}, "decoded": {Storage: cache.Decoded}, "managed fields": {KeepManagedFields: true},
			"transformed": {Transform: cache.NewTransform("no other data", func(m *corev1.ConfigMap) { delete(m.Data, "other") })},
		} {
			if name == "update" && form == "transformed" {
				continue // it would lose the data
			}
			t.Run(name+" "+form, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.ConfigMaps)
					api.Lag(time.Millisecond)
					api.Put(sim.ConfigMaps, fought())
					one := newFighter(t, api, "one", scope, write("1"))
					two := newFighter(t, api, "two", scope, write("2"))
					time.Sleep(time.Minute)
					synctest.Wait()
					before := api.Count("patch", sim.ConfigMaps) + api.Count("update", sim.ConfigMaps) + api.Count("apply", sim.ConfigMaps)
					time.Sleep(time.Minute)
					synctest.Wait()
					if n := api.Count("patch", sim.ConfigMaps) + api.Count("update", sim.ConfigMaps) + api.Count("apply", sim.ConfigMaps) - before; n > 125 || n < 50 {
						t.Errorf("%d writes in a minute, want two a second at most", n)
					}
					for f, other := range map[*fighter]string{one: "two", two: "one"} {
						if name == "update" {
							other = "" // the sim keeps no managed fields before the first apply
						}
						if len(f.fights) != 1 || !slices.Equal(f.fights[0].Fields, []string{".data.value"}) || strings.Join(f.fights[0].By, ",") != other ||
							f.fights[0].Key != "default/a" || !strings.Contains(f.fights[0].Write, "configmaps default/a") {
							t.Errorf("reported %+v, want .data.value by %s, once", f.fights, other)
						}
					}
				})
			})
		}
	}
}

// TestC14_OtherChangesAreNotDelayed: a change of another field during a fight.
func TestC14_OtherChangesAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(time.Millisecond)
		api.Put(sim.ConfigMaps, fought())
		one := newFighter(t, api, "one", cache.Scope{}, applies("1"))
		newFighter(t, api, "two", cache.Scope{}, applies("2"))
		time.Sleep(time.Minute + 300*time.Millisecond)
		synctest.Wait()
		for range 20 {
			before := one.n()
			at := time.Now()
			now := api.Object(sim.ConfigMaps, "default", "a")
			now.SetLabels(map[string]string{"person": at.String()})
			api.Put(sim.ConfigMaps, now)
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			testkit.NotEqual(t, one.n(), before, fmt.Sprintf("a change of a label after %s waits", at))
			time.Sleep(1300 * time.Millisecond)
		}
	})
}

// TestC14_NoFight: many changes by others, to which the key answers with writes of its own fields,
// are not slowed down.
func TestC14_NoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, fought())
		f := newFighter(t, api, "one", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
			m, err := f.maps.Get(ctx, key)
			if err != nil {
				return err
			}
			_, err = client.For[*corev1.ConfigMap](f.client).Apply(ctx, corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"seen": m.Data["other"]}))
			return err
		})
		for i := range 200 {
			now := api.Object(sim.ConfigMaps, "default", "a")
			_ = unstructuredData(now.Object, "other", time.Now().Add(time.Duration(i)).String())
			api.Put(sim.ConfigMaps, now)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		testkit.AtLeast(t, f.n(), 200)
		testkit.Len(t, f.fights, 0)
	})
}

// TestC14_TracesAreNoFight: others and the key change fields of their own, and each sets the
// annotation of its trace.
func TestC14_TracesAreNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, fought())
		trace := func(by string, n string) map[string]string {
			return map[string]string{"tracing.k8s.io/traceparent": by + n}
		}
		f := newFighter(t, api, "one", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
			m, err := f.maps.Get(ctx, key)
			if err != nil {
				return err
			}
			desired := corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"seen": m.Data["other"]})
			_, err = client.For[*corev1.ConfigMap](f.client).Apply(ctx, desired.WithAnnotations(trace("one", m.Data["other"])))
			return err
		})
		for i := range 100 {
			now := api.Object(sim.ConfigMaps, "default", "a")
			_ = unstructuredData(now.Object, "other", fmt.Sprint(i))
			now.SetAnnotations(trace("two", fmt.Sprint(i)))
			api.Put(sim.ConfigMaps, now)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
		}
		testkit.AtLeast(t, f.n(), 100)
		testkit.Len(t, f.fights, 0)
	})
}

// TestFieldsOf_LeavesTheObjects: they may be a cache's.
func TestFieldsOf_LeavesTheObjects(t *testing.T) {
	object := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": value},
			"metadata": map[string]any{"name": "a", "resourceVersion": value, "annotations": map[string]any{"tracing.k8s.io/traceparent": value}},
		}}
	}
	one, other := object("1"), object("2")
	testkit.SlicesEqual(t, controller.FieldsOf(one, other), []string{".data.a"}, "the fields differ")
	testkit.DeepEqual(t, one, object("1"))
	testkit.DeepEqual(t, other, object("2"))
}

// TestC14_OnePersonIsNoFight: a key that answers to each change with a field of its own, and a
// person who changes such a field once.
func TestC14_OnePersonIsNoFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, fought())
		f := newFighter(t, api, "one", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
			m, err := f.maps.Get(ctx, key)
			if err != nil {
				return err
			}
			_, err = client.For[*corev1.ConfigMap](f.client).Apply(ctx, corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"seen": m.Data["other"], "mode": "auto"}))
			return err
		})
		for i := range 60 {
			now := api.Object(sim.ConfigMaps, "default", "a")
			_ = unstructuredData(now.Object, "other", fmt.Sprint(i))
			if i == 20 {
				_ = unstructuredData(now.Object, "mode", "manual")
			}
			api.Put(sim.ConfigMaps, now)
			time.Sleep(time.Second)
		}
		testkit.Len(t, f.fights, 0, "reported")
	})
}

// TestC14_RequeueIsNotDelayed: calls of Requeue and RequeueAll begin a Reconcile at once, and a
// failing key keeps the number of its attempts.
func TestC14_RequeueIsNotDelayed(t *testing.T) {
	for name, call := range map[string]func(c *controller.Controller[types.NamespacedName]) error{
		"Requeue": func(c *controller.Controller[types.NamespacedName]) error {
			c.Requeue(types.NamespacedName{Namespace: "default", Name: "a"})
			return nil
		},
		"RequeueAll": func(c *controller.Controller[types.NamespacedName]) error { return c.RequeueAll(context.Background()) },
		"Add": func(c *controller.Controller[types.NamespacedName]) error {
			c.Queue().Add(types.NamespacedName{Namespace: "default", Name: "a"})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Lag(time.Millisecond)
				api.Put(sim.ConfigMaps, fought())
				one := newFighter(t, api, "one", cache.Scope{}, applies("1"))
				newFighter(t, api, "two", cache.Scope{}, applies("2"))
				time.Sleep(time.Minute)
				before := one.n()
				for waits := 0; waits < 10; waits++ { // it has seen the other's value
					time.Sleep(time.Millisecond)
					synctest.Wait()
					if n := one.n(); n != before || api.Object(sim.ConfigMaps, "default", "a").Object["data"].(map[string]any)["value"] != "2" {
						before, waits = n, 0
					}
				}
				ok(t, call(one.control))
				synctest.Wait()
				testkit.Equal(t, one.n(), before+1, "Reconciles")
			})
		})
	}
}

// TestC14_AttemptsCount: a key that fights and fails is given up after MaxAttempts.
func TestC14_AttemptsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(time.Millisecond)
		api.Put(sim.ConfigMaps, fought())
		one := newFighter(t, api, "one", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
			return errors.Join(applies("1")(ctx, f, key), errFlaky)
		})
		newFighter(t, api, "two", cache.Scope{}, applies("2"))
		time.Sleep(time.Minute)
		synctest.Wait()
		first := one.control.Failing()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		later := one.control.Failing()
		if len(first) != 1 || len(later) != 1 || first[0].Attempts < 12 || later[0].Attempts <= first[0].Attempts || later[0].Attempts > one.n() {
			t.Errorf("failing after a minute %+v, 10 minutes later %+v, of %d Reconciles", first, later, one.n())
		}
	})
}

// TestC14_FightsAreForgotten: a key that has written keeps nothing after a few minutes.
func TestC14_FightsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(time.Millisecond)
		api.Put(sim.ConfigMaps, fought())
		one := newFighter(t, api, "one", cache.Scope{}, applies("1"))
		time.Sleep(time.Second)
		testkit.Equal(t, one.control.Fights(), 1, "records after a write")
		time.Sleep(5 * time.Minute)
		testkit.Equal(t, one.control.Fights(), 0, "records five minutes later")
	})
}

func unstructuredData(object map[string]any, key, value string) error {
	data, _ := object["data"].(map[string]any)
	data[key] = value
	return nil
}

// TestC14_APauseEnds: when a Reconcile has begun, timers of the key are not delayed any more.
func TestC14_APauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(time.Millisecond)
		api.Put(sim.ConfigMaps, fought())
		var polls atomic.Bool
		one := newFighter(t, api, "one", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
			if polls.Load() {
				return controller.RetryAfter(errFlaky, 50*time.Millisecond)
			}
			return applies("1")(ctx, f, key)
		})
		newFighter(t, api, "two", cache.Scope{}, applies("2"))
		time.Sleep(30*time.Second + 300*time.Millisecond)
		polls.Store(true)
		one.control.Requeue(types.NamespacedName{Namespace: "default", Name: "a"})
		synctest.Wait()
		before := one.n()
		time.Sleep(510 * time.Millisecond)
		synctest.Wait()
		testkit.AtLeast(t, one.n()-before, 10)
	})
}

// TestC14_ADeletedObjectIsNotCompared: the last write of the object may have deleted it.
func TestC14_ADeletedObjectIsNotCompared(t *testing.T) {
	if controller.ContestOfDeleted(controller.New("test", controller.Func[string](func(context.Context, string) (controller.Result, error) {
		return controller.Result{}, nil
	}), controller.Options{})) {
		t.Error("a fight goes on without the object")
	}
}

// TestC14_SlowOpponent: a fight is found if the other writes only after the key has seen its own
// write, also if the key writes another object in between.
func TestC14_SlowOpponent(t *testing.T) {
	for name, also := range map[string]bool{"alone": false, "another object": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testSlowOpponent(t, also) }) })
	}
}

func testSlowOpponent(t *testing.T, also bool) {
	api := sim.NewServer(sim.ConfigMaps)
	api.Lag(time.Millisecond)
	api.Put(sim.ConfigMaps, fought())
	seen := 0
	one := newFighter(t, api, "one", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
		if key.Name != "a" {
			return nil
		}
		if m, err := f.maps.Get(ctx, key); err != nil || m.Data["value"] != "1" || !also {
			return applies("1")(ctx, f, key)
		}
		seen++
		_, err := client.For[*corev1.ConfigMap](f.client).Apply(ctx, corev1ac.ConfigMap("b", key.Namespace).WithData(map[string]string{"seen": fmt.Sprint(seen)}))
		return err
	})
	two := func(times int) {
		for range times {
			time.Sleep(150 * time.Millisecond)
			_, err := client.For[*corev1.ConfigMap](one.client).Apply(t.Context(), corev1ac.ConfigMap("a", "default").WithData(map[string]string{"value": "2"}), client.FieldOwner("two"))
			ok(t, err)
		}
	}
	two(200)
	before := one.n()
	two(20)
	if len(one.fights) != 1 || !slices.Equal(one.fights[0].Fields, []string{".data.value"}) || strings.Join(one.fights[0].By, ",") != "two" {
		t.Errorf("reported %+v, want .data.value by two, once", one.fights)
	}
	testkit.AtMost(t, one.n()-before, 12)
}

// TestC14_NotByOthersFights: a key that writes fields of its own into an object that two others
// fight for is not slowed down, although their writes come between what it has seen and its own.
func TestC14_NotByOthersFights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Lag(5 * time.Millisecond)
		api.Put(sim.ConfigMaps, fought())
		n := 0
		third := newFighter(t, api, "third", cache.Scope{}, func(ctx context.Context, f *fighter, key types.NamespacedName) error {
			m, err := f.maps.Get(ctx, key)
			if err != nil || n == 600 {
				return err
			}
			maps := client.For[*corev1.ConfigMap](f.client)
			others := func() {
				n++
				_, err := maps.Apply(t.Context(), corev1ac.ConfigMap("a", "default").WithData(map[string]string{"value": fmt.Sprint(n % 3)}), client.FieldOwner(fmt.Sprint("other", n%2)))
				ok(t, err)
			}
			others() // between the state that is seen, and the write
			_, err = maps.Apply(ctx, corev1ac.ConfigMap(key.Name, key.Namespace).WithLabels(map[string]string{"seen": m.Data["value"]}))
			others()
			return err
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, n, 600, "writes of the others")
		testkit.Len(t, third.fights, 0, "reported")
	})
}

// TestOwnOf: what a write has set or removed, by the managed fields in its answer.
func TestOwnOf(t *testing.T) {
	answer := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "one", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:mine":{}}}`)},
		{Manager: "two", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:theirs":{}}}`)},
		{Manager: "one", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:mine":{}}}`)},
	}}}
	fields := []string{"spec.mine", "spec.theirs", "spec.removed", "status.mine", "status.removed"}
	for w, want := range map[ledger.Request]string{
		{FieldManager: "one"}: ".spec.mine .spec.removed .status.removed",
		{FieldManager: "two"}: ".spec.removed .spec.theirs .status.removed",
		{}:                    ".spec.mine .spec.removed .spec.theirs .status.removed",
		{FieldManager: "one", Subresource: "status"}: ".status.mine .status.removed",
	} {
		testkit.Equal(t, controller.OwnOf(&ledger.Write{Request: w, Object: answer}, fields...), want, w)
	}
}

// TestContestedOnly: a change of the status is no reason to go on with a fight at full speed; one
// of the spec or the metadata is.
func TestContestedOnly(t *testing.T) {
	for found, want := range map[string]bool{"spec.replicas": true, "status.replicas": true, "spec.image": false, "metadata.labels.status": false, "status": false} {
		testkit.Equal(t, controller.ContestedOnly("spec.replicas", "spec.replicas", found), want, found)
	}
}
