// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
	"github.com/setpoint-dev/setpoint/workqueue"
)

type stepFunc = func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error)

// slotFunc maps keys to slots.
type slotFunc func(types.NamespacedName) (uint8, error)

func (f slotFunc) Slot(key types.NamespacedName) (uint8, error) { return f(key) }

// partition divides keys by a function.
type partition struct {
	slotFunc
	*owned.Table
}

// firstLetters maps keys to the first letters of their names.
func firstLetters(key types.NamespacedName) (uint8, error) { return key.Name[0], nil }

// newSharded returns a rig whose slots are the first letters of the names. Names that begin with x
// have no slot.
func newSharded(t *testing.T, o controller.Options, steps ...stepFunc) (*rig, *owned.Table) {
	t.Helper()
	r := newRig(t, o, workqueue.Options[types.NamespacedName]{}, nil, steps...)
	all := owned.New()
	r.control.Divide(partition{func(key types.NamespacedName) (uint8, error) {
		if key.Name[0] == 'x' {
			return 0, errors.New("no slot for " + key.Name)
		}
		return key.Name[0], nil
	}, all})
	for _, name := range []string{"b1", "b2", "c"} {
		r.put(name)
	}
	return r, all
}

func (r *rig) put(name string) {
	r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named(name), Data: map[string]string{"at": time.Now().String()}})
}

func ownership(slot byte, left *fence.Handover) *owned.Slot {
	leading := fence.New(fence.Token{Lease: "lease", ResourceVersion: "1"}, time.Now(), time.Hour)
	leading.Inherit(left)
	return &owned.Slot{Number: slot, Term: leading}
}

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: name}
}

// seen waits and returns the names that were reconciled since the last call, sorted.
func (r *rig) seen(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.keys)
	keys := strings.Join(r.keys, " ")
	r.keys, r.at, r.stale = nil, nil, nil
	return keys
}

func (r *rig) wantSeen(what string, d time.Duration, want string) {
	r.t.Helper()
	testkit.Equal(r.t, r.seen(d), want, what, "reconciled")
}

func (r *rig) wantEmptyQueue(what string) {
	r.t.Helper()
	testkit.Len(r.t, r.control.Snapshot().Queue.Keys, 0, what, "the queue has")
}

// TestP1_OnlyKeysOfServedSlotsAreReconciled: no way leads a foreign key into the queue. An
// ownership delivers the objects of its slot, and no others.
func TestP1_OnlyKeysOfServedSlotsAreReconciled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		r.wantSeen("without slots", time.Minute, "")
		all.Acquire(ownership('a', nil))
		r.wantSeen("with a", time.Second, "a")
		all.Acquire(ownership('b', nil))
		r.wantSeen("with b", time.Second, "b1 b2")
		if n := r.control.Snapshot().Slots; n == nil || *n != 2 {
			t.Errorf("it serves %v slots", n)
		}
		r.control.Pause() // so that nothing leaves the queue
		r.put("c")
		r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "c", Namespace: "default", Annotations: map[string]string{controller.RequeueAnnotation: "now"},
		}})
		q := r.control.Queue()
		for _, c := range []types.NamespacedName{keyOf("c"), keyOf("x")} {
			q.Add(c)
			q.AddWith(c, workqueue.AddOptions{After: time.Second})
			q.AddAll([]types.NamespacedName{keyOf("a"), c}, workqueue.AddOptions{})
			r.control.Requeue(c)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if keys := r.control.Snapshot().Queue.Keys; len(keys) != 1 || keys[0].Key != keyOf("a") {
			t.Errorf("the queue has %+v", keys)
		}
		r.control.Resume()
		r.wantSeen("after adds", time.Second, "a")
		ok(t, r.control.RequeueAll(t.Context()))
		r.wantSeen("after RequeueAll", time.Second, "a b1 b2")
	})
}

// TestP1_AStopDropsTheKeys, and what is known of them, wherever they wait.
func TestP1_AStopDropsTheKeys(t *testing.T) {
	for name, step := range map[string]stepFunc{
		"ready": func(r *rig, _ context.Context, key types.NamespacedName) (controller.Result, error) {
			r.control.Requeue(key)
			r.control.Pause()
			return controller.Result{}, nil
		},
		"later": func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{RequeueAfter: time.Hour}, nil
		},
		"backoff": func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, controller.RetryAfter(errFlaky, time.Hour)
		},
		"given up": func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			return controller.Result{}, controller.Terminal(errFlaky)
		},
		"parked": func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			r.api.Lag(time.Hour)
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named("s")})
			r.control.Requeue(keyOf("a"))
			return controller.Result{}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, all := newSharded(t, controller.Options{ReadYourWrites: time.Hour}, step)
				r.start()
				a := ownership('a', nil)
				all.Acquire(a)
				r.wantSeen("acquired", time.Second, "a")
				all.Stop(a)
				synctest.Wait()
				r.control.Resume()
				r.wantSeen("stopped", time.Minute, "")
				r.wantEmptyQueue("stopped")
				testkit.Equal(t, r.control.Remembered()+r.control.Spinning(), 0)
				if n := r.control.Snapshot().Slots; n == nil || *n != 0 {
					t.Errorf("it serves %v slots", n)
				}
			})
		})
	}
}

// TestP1_AReconcileRunsWithinItsAdoption: the ownership is idle only when the Reconcile is settled,
// and no other one begins after Stop.
func TestP1_AReconcileRunsWithinItsAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		r, all := newSharded(t, controller.Options{}, func(*rig, context.Context, types.NamespacedName) (controller.Result, error) {
			<-goOn
			return controller.Result{}, errFlaky
		})
		r.start()
		a := ownership('a', nil)
		all.Acquire(a)
		r.wantSeen("acquired", time.Second, "a")
		r.put("a")
		all.Stop(a)
		synctest.Wait()
		testkit.Equal(t, a.Idle(), false, "the ownership is idle while its Reconcile runs")
		close(goOn)
		<-all.Returned()
		if s, _ := r.control.TheQueue().Lookup(keyOf("a")); s.State == workqueue.Held && s.Attempts == 0 {
			t.Errorf("idle before the settle: %+v", s)
		}
		r.wantSeen("stopped", time.Minute, "")
		r.wantEmptyQueue("stopped")
	})
}

// TestP1_NothingBeginsAfterStop, even while the controller has not noticed it.
func TestP1_NothingBeginsAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		slow := newPartial(keyOf("b3"))
		slow.held = make(chan struct{})
		close(slow.may)
		r.control.Watch(slow)
		r.start()
		r.wantSeen("started", time.Second, "")
		a := ownership('a', nil)
		all.Acquire(a)
		r.wantSeen("acquired", time.Second, "a") // and its replay is held
		all.Stop(a)
		r.control.Requeue(keyOf("a"))
		r.wantSeen("stopped", time.Second, "")
		r.wantEmptyQueue("stopped")
		all.Acquire(ownership('b', nil))
		close(slow.held)
		r.wantSeen("the replay goes on", time.Second, "b1 b2 b3")
	})
}

// TestP1_RequestsEndWithTheSlot: a Reconcile has the term of its ownership. The controller's
// next ownership of the slot has another one.
func TestP1_RequestsEndWithTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, again := ownership('a', nil), ownership('a', nil)
		var errs []error
		write := func(r *rig, ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
			_, err := r.secret().Create(ctx, &corev1.Secret{ObjectMeta: named(fmt.Sprint("s", len(errs)))})
			errs = append(errs, err)
			return controller.Result{}, nil
		}
		r, all := newSharded(t, controller.Options{}, write, func(r *rig, ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			a.Term.End(errors.New("the slot is released"))
			return write(r, ctx, key)
		}, write)
		r.start()
		all.Acquire(a)
		r.wantSeen("acquired", time.Second, "a")
		r.control.Requeue(keyOf("a"))
		r.wantSeen("requeued", time.Second, "a")
		all.Stop(a)
		all.Acquire(again)
		r.wantSeen("acquired again", time.Second, "a")
		if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], term.ErrFenced) || errs[2] != nil {
			t.Errorf("the writes returned %v", errs)
		}
		if h := a.Term.Written(); len(h.Written) != 2 || h.Written[0].Resource.Resource != "configmaps" || h.Written[1].Resource.Resource != "secrets" {
			t.Errorf("the first ownership's term recorded %+v", h)
		}
	})
}

// TestP4_ASlotHandsOverWhatWasRead: not only what was written.
func TestP4_ASlotHandsOverWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		a := ownership('a', nil)
		all.Acquire(a)
		r.wantSeen("acquired", time.Second, "a")
		m := r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("b1"), Data: map[string]string{"k": "changed"}})
		r.wantSeen("changed", time.Second, "")
		if h := a.Term.Written(); len(h.Written) == 0 || h.Written[0].Resource.Resource != "configmaps" || h.Written[0].ResourceVersion != m.GetResourceVersion() {
			t.Errorf("the slot hands over %+v, want the version %s of configmaps", h, m.GetResourceVersion())
		}
	})
}

// leftBehind is the handover of an owner that wrote the secret s. Caches show it after lag.
func (r *rig) leftBehind(lag time.Duration) *fence.Handover {
	r.api.Lag(lag)
	s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"k": []byte(time.Now().String())}})
	return handedOver("other", wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored))
}

// TestP4_AnAdoptionWaitsForTheFormerOwnersWrites, and for no other owner's. Slots of the same owner
// wait once.
func TestP4_AnAdoptionWaitsForTheFormerOwnersWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		r.wantSeen("started", time.Second, "")
		left := r.leftBehind(10 * time.Second)
		a, b, c := ownership('a', left), ownership('b', left), ownership('c', nil)
		all.Acquire(a, b, c)
		r.wantSeen("at once", 0, "c")
		waits := a.Waiting()["test"]
		testkit.Contains(t, waits, "the write of secrets")
		testkit.Equal(t, b.Waiting()["test"], waits)
		testkit.Len(t, c.Waiting(), 0)
		r.control.Requeue(keyOf("a"))
		r.wantSeen("before", 10*time.Second-1, "")
		r.wantSeen("after", 1, "a b1 b2")
		if len(r.taken) != 1 || r.taken[0].Took != 10*time.Second || r.taken[0].Writes != 1 || r.taken[0].Expired {
			t.Errorf("told %+v", r.taken)
		}
		testkit.Equal(t, len(a.Waiting())+len(b.Waiting()), 0, "waiting")
	})
}

// TestP4_TheWaitForAnOwnerIsBounded: then Stale names what is missing, in that owner's slots only.
func TestP4_TheWaitForAnOwnerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &testkit.Buffer{}
		r, all := newSharded(t, controller.Options{ReadYourWrites: time.Second, Logger: slog.New(slog.NewTextHandler(out, nil))})
		r.start()
		r.wantSeen("started", time.Second, "")
		all.Acquire(ownership('a', r.leftBehind(time.Minute)), ownership('c', nil))
		time.Sleep(time.Second)
		synctest.Wait()
		if fmt.Sprint(r.keys) != "[c a]" {
			t.Fatalf("reconciled %s, want [c a]", r.keys)
		}
		testkit.Equal(t, r.stale[0], nil)
		testkit.ErrorContains(t, r.stale[1], "the write of secrets")
		if len(r.taken) != 1 || !r.taken[0].Expired || strings.Count(out.String(), "leader=other") != 1 {
			t.Errorf("told %+v; the log:\n%s", r.taken, out)
		}
	})
}

// TestP4_AStopDuringTheWait: the ownership is never served, and replaces no later one.
func TestP4_AStopDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		r.wantSeen("started", time.Second, "")
		a := ownership('a', r.leftBehind(10*time.Second))
		all.Acquire(a)
		synctest.Wait()
		all.Stop(a)
		r.wantSeen("stopped", time.Second, "")
		all.Acquire(ownership('a', nil))
		r.wantSeen("acquired again", time.Minute, "a")
		r.control.Requeue(keyOf("a"))
		r.wantSeen("requeued", time.Second, "a")
	})
}

// TestShards_ADeletionMoves: the next owner reconciles the key of an object that it saw being
// deleted at most a minute before, although no cache has it.
func TestShards_ADeletionMoves(t *testing.T) {
	for name, test := range map[string]struct {
		acquired time.Duration
		want     string
	}{"soon": {time.Minute - lag, "b1 b2"}, "late": {time.Minute + lag, "b2"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, all := newSharded(t, controller.Options{})
				r.start()
				r.wantSeen("started", time.Second, "")
				r.api.Remove(sim.ConfigMaps, "default", "b1")
				time.Sleep(lag)
				synctest.Wait()
				time.Sleep(test.acquired)
				b := ownership('b', nil)
				all.Acquire(b)
				r.wantSeen("acquired", time.Second, test.want)
				all.Stop(b)
				synctest.Wait()
				all.Acquire(ownership('b', nil))
				r.wantSeen("once", time.Second, "b2")
			})
		})
	}
}

// TestShards_ADroppedDeletionMovesBack: the key of a deletion was queued, but not reconciled, when
// the slot left.
func TestShards_ADroppedDeletionMovesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		b := ownership('b', nil)
		all.Acquire(b)
		r.wantSeen("acquired", time.Second, "b1 b2")
		r.control.Pause()
		r.api.Remove(sim.ConfigMaps, "default", "b1")
		time.Sleep(time.Second)
		all.Stop(b)
		synctest.Wait()
		r.control.Resume()
		r.wantSeen("stopped", time.Second, "")
		all.Acquire(ownership('b', nil))
		r.wantSeen("acquired again", time.Second, "b1 b2")
	})
}

// TestShards_RememberedDeletionsAreBounded: the oldest are forgotten.
func TestShards_RememberedDeletionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		for i := range 10_002 {
			r.control.Queue().AddWith(keyOf(fmt.Sprint("d", max(1, i))), workqueue.AddOptions{Reason: workqueue.Reason{Event: string(handler.Delete)}})
		}
		all.Acquire(ownership('d', nil))
		if got := strings.Fields(r.seen(time.Second)); len(got) != 10_000 || slices.Contains(got, "d1") {
			t.Errorf("reconciled %d keys, the oldest: %t", len(got), slices.Contains(got, "d1"))
		}
	})
}

// TestShards_AKeyWithoutASlotIsReported once, and is never reconciled.
func TestShards_AKeyWithoutASlotIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &testkit.Buffer{}
		r, all := newSharded(t, controller.Options{Logger: slog.New(slog.NewTextHandler(out, nil))})
		r.put("x")
		r.start()
		all.Acquire(ownership('a', nil), ownership(0, nil))
		r.put("x")
		r.wantSeen("acquired", time.Second, "a")
		const want = `level=ERROR msg="a key has no slot, so no process reconciles it" controller=test key=default/x err="no slot for x"`
		testkit.Count(t, out.String(), want, 1)
		testkit.Count(t, out.String(), "no slot", 2)
	})
}

type placed struct{ name string }

func (p placed) ShardKey() types.NamespacedName {
	if p.name == "panics" {
		panic("no name")
	}
	return types.NamespacedName{Name: p.name}
}

// TestShards_KeysMustHaveAPlace: Validate names the type and the remedy, also if a default
// divides the controller.
func TestShards_KeysMustHaveAPlace(t *testing.T) {
	sharded := controller.Options{Partition: new(shard.Group), Logger: silent}
	nothing := func(context.Context, int) (controller.Result, error) { return controller.Result{}, nil }
	given := controller.New("given", controller.Func[int](nothing), sharded)
	byDefault := controller.New("default", controller.Func[int](nothing), controller.Options{})
	byDefault.Default(sharded)
	byDefault.Default(sharded)
	const want = "controller.Options.Partition: a key of type int has no slot; give int a method ShardKey() types.NamespacedName"
	for _, c := range []*controller.Controller[int]{given, byDefault} {
		if err := c.Validate(); err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
	var seen []placed
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := controller.New("placed", controller.Func[placed](func(_ context.Context, key placed) (controller.Result, error) {
		seen = append(seen, key)
		cancel()
		return controller.Result{}, nil
	}), sharded)
	ok(t, c.Validate())
	all := owned.New()
	c.Divide(partition{firstLetters, all})
	a := ownership('a', nil)
	all.Acquire(a)
	keys := newPartial(placed{"panics"}, placed{"b"}, placed{"a"})
	close(keys.may)
	c.Watch(keys)
	ok(t, c.Run(ctx))
	testkit.Equal(t, fmt.Sprint(seen), "[{a}]", "reconciled")
}
