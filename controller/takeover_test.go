// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// takeOver starts the rig's controller in a term that has inherited writes. It returns a function
// that stops it.
func (r *rig) takeOver(writes ...ledger.Write) (stop func()) {
	return r.inherit(handedOver("a", writes...))
}

func (r *rig) inherit(h *fence.Handover) (stop func()) {
	leading := fence.New(fence.Token{}, time.Now(), time.Hour)
	leading.Inherit(h)
	ctx, cancel := context.WithCancel(fence.With(context.Background(), leading))
	ended := make(chan error, 1)
	r.began = time.Now()
	go func() { ended <- r.control.Run(ctx) }()
	return func() {
		cancel()
		ok(r.t, <-ended)
		leading.End(nil)
	}
}

// handedOver is what a term hands over that has made some writes.
func handedOver(holder string, writes ...ledger.Write) *fence.Handover {
	before := fence.New(fence.Token{}, time.Now(), time.Hour)
	defer before.End(nil)
	for i := range writes {
		before.Wrote(&writes[i])
	}
	h := before.Written()
	h.Holder = holder
	return h
}

// wrote is a write of the previous term.
func wrote(resource, name, uid, version string, effect ledger.Effect) ledger.Write {
	w := ledger.Write{UID: types.UID(uid), ResourceVersion: version, Effect: effect}
	w.Verb, w.Resource, w.Namespace, w.Name = "update", resource, metav1.NamespaceDefault, name
	if effect != ledger.Stored {
		w.Verb = "delete"
	}
	return w
}

// takingOver is a rig whose synced cache does not show later changes before the lag is over.
func takingOver(t *testing.T, o controller.Options) (r *rig, told *[]hook.Takeover) {
	r = newRig(t, o, workqueue.Options[types.NamespacedName]{}, nil)
	r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s")})
	synctest.Wait()
	r.api.Lag(lag)
	return r, &r.taken
}

// TestL9_TheFirstReconcileSeesWhatWasWrittenBefore: workers wait for those writes of the previous
// term that they can see.
func TestL9_TheFirstReconcileSeesWhatWasWrittenBefore(t *testing.T) {
	one := func(w ledger.Write) []ledger.Write { return []ledger.Write{w} }
	for name, c := range map[string]struct {
		write func(*rig) []ledger.Write
		at    time.Duration // of the first Reconcile
		doubt string
	}{
		"an update": {func(r *rig) []ledger.Write {
			s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"k": nil}})
			return one(wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored))
		}, lag, ""},
		"a creation": {func(r *rig) []ledger.Write {
			s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("new")})
			return one(wrote("secrets", "new", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored))
		}, lag, ""},
		"a deletion": {func(r *rig) []ledger.Write {
			s := r.api.Object(sim.Secrets, "default", "s")
			r.api.Remove(sim.Secrets, "default", "s")
			return one(wrote("secrets", "s", string(s.GetUID()), "", ledger.Gone))
		}, lag, ""},
		"a creation and a deletion": {func(r *rig) []ledger.Write {
			s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("new")})
			r.api.Remove(sim.Secrets, "default", "new")
			return one(wrote("secrets", "new", string(s.GetUID()), s.GetResourceVersion(), ledger.Gone))
		}, lag, ""},
		"one that may be marked": {func(r *rig) []ledger.Write {
			s := r.api.Object(sim.Secrets, "default", "s")
			r.api.Remove(sim.Secrets, "default", "s")
			return one(wrote("secrets", "s", string(s.GetUID()), "", ledger.Accepted))
		}, lag, ""},
		"two kinds, the second later": {func(r *rig) []ledger.Write {
			m := r.api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"k": ""}})
			time.Sleep(lag / 2)
			s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"k": nil}})
			return []ledger.Write{
				wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored),
				wrote("configmaps", "a", string(m.GetUID()), m.GetResourceVersion(), ledger.Stored),
			}
		}, lag, ""},
		"what is shown": {func(r *rig) []ledger.Write {
			s := r.api.Object(sim.Secrets, "default", "s")
			return one(wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored))
		}, 0, ""},
		"what no input keeps":     {func(r *rig) []ledger.Write { return one(wrote("pods", "p", "u", "1000000", ledger.Stored)) }, 0, ""},
		"what cannot be compared": {func(r *rig) []ledger.Write { return one(wrote("secrets", "s", "u", "abc", ledger.Stored)) }, 0, ""},
		"a lost answer": {func(r *rig) []ledger.Write {
			r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("new")})
			return one(wrote("secrets", "new", "", "", ledger.Uncertain))
		}, lag, "the effect of 1 writes is unknown"},
		"a lost answer, and nothing was stored": {func(*rig) []ledger.Write {
			return one(wrote("secrets", "new", "", "", ledger.Uncertain))
		}, 0, "the effect of 1 writes is unknown"},
	} {
		t.Run(name, func(t *testing.T) { firstReconcileAfter(t, c.write, c.at, c.doubt) })
	}
}

// firstReconcileAfter checks when the first Reconcile of a term with inherited writes starts.
func firstReconcileAfter(t *testing.T, write func(*rig) []ledger.Write, at time.Duration, doubtful string) {
	synctest.Test(t, func(t *testing.T) {
		r, told := takingOver(t, controller.Options{})
		writes := write(r)
		stop := r.takeOver(writes...)
		if at > 0 {
			time.Sleep(at - 1)
			synctest.Wait()
			r.mu.Lock()
			early := len(r.at) > 0
			r.mu.Unlock()
			testkit.Equal(t, early, false, "reconciled already")
			testkit.NotEqual(t, r.control.Snapshot().TakingOver, "", "taking over")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.at) == 0 || r.at[0] != at || r.stale[0] != nil {
			t.Errorf("reconciled at %s, want the first time at %s; %v", r.at, at, r.stale)
		}
		stop()
		if len(*told) != 1 {
			t.Fatalf("told %+v", *told)
		}
		e := (*told)[0]
		doubt := ""
		if e.Doubts != nil {
			doubt = e.Doubts.Error()
		}
		if e.Controller != "test" || e.Took != at || e.Writes != len(handedOver("a", writes...).Written) || e.Expired || !strings.Contains(doubt, doubtful) || (doubtful == "") != (doubt == "") {
			t.Errorf("told %+v", e)
		}
		testkit.Equal(t, r.control.Snapshot().TakingOver, "")
	})
}

// TestL9_ATermHandsOverWhatWasRead: not only what was written. A deletion counts, too. After a
// restore it is what was read since, and nothing once the kind is not served.
func TestL9_ATermHandsOverWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, controller.Options{}, workqueue.Options[types.NamespacedName]{}, nil)
		leading := fence.New(fence.Token{}, time.Now(), time.Hour)
		ctx, cancel := context.WithCancel(fence.With(context.Background(), leading))
		ended := make(chan error, 1)
		go func() { ended <- r.control.Run(ctx) }()
		reads := func(version string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			for _, w := range leading.Written().Written {
				if w.Resource.Resource == "secrets" && w.ResourceVersion == version {
					return
				}
			}
			t.Errorf("the term hands over %+v, want the version %s of secrets", leading.Written().Written, version)
		}
		reads(r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s")}).GetResourceVersion())
		other := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("other")})
		reads(other.GetResourceVersion())
		r.api.Remove(sim.Secrets, "default", "s")
		last, err := strconv.Atoi(other.GetResourceVersion())
		ok(t, err)
		reads(strconv.Itoa(last + 1))
		backup := r.api.Backup()
		for range 10 {
			r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("later")})
		}
		time.Sleep(time.Minute)
		backup.Restore()
		time.Sleep(10 * time.Minute)
		reads(other.GetResourceVersion()) // as the store has it now
		r.api.Withdraw(sim.Secrets)
		time.Sleep(10 * time.Minute)
		if h := leading.Written(); slices.ContainsFunc(h.Written, func(w fence.Written) bool { return w.Resource.Resource == "secrets" }) {
			t.Errorf("the next term waits for a kind that is not served: %+v", h.Written)
		}
		cancel()
		ok(t, <-ended)
		leading.End(nil)
	})
}

// TestL9_AnUnreadableHandover: the caches are compared with the API server, whatever was written.
func TestL9_AnUnreadableHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, told := takingOver(t, controller.Options{})
		r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"k": nil}})
		stop := r.inherit(&fence.Handover{Unknown: 1})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.at) == 0 || r.at[0] != lag || r.stale[0] != nil {
			t.Errorf("reconciled at %s; %v", r.at, r.stale)
		}
		stop()
		if len(*told) != 1 || (*told)[0].Expired || !strings.Contains((*told)[0].Doubts.Error(), "the effect of 1 writes is unknown") {
			t.Errorf("told %+v", *told)
		}
	})
}

// TestL9_IsBounded: the wait ends after the bound, and the log names what is missing.
func TestL9_IsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		set, at time.Duration
	}{"by default": {0, 30 * time.Second}, "as told": {time.Second, time.Second}, "off": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &testkit.Buffer{}
				r, told := takingOver(t, controller.Options{ReadYourWrites: c.set, Logger: slog.New(slog.NewTextHandler(out, nil))})
				r.api.Lag(time.Minute)
				s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"k": nil}})
				stop := r.takeOver(wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored))
				defer stop()
				time.Sleep(c.at + 1)
				synctest.Wait()
				if len(r.at) != 1 || r.at[0] != c.at {
					t.Fatalf("reconciled at %s, want %s", r.at, c.at)
				}
				if c.set < 0 {
					if len(*told) != 0 || r.stale[0] != nil {
						t.Errorf("told %+v; %v", *told, r.stale)
					}
					return
				}
				const says = "does not show the write of secrets at "
				testkit.ErrorContains(t, r.stale[0], says, "Stale says")
				if len(*told) != 1 || !(*told)[0].Expired || (*told)[0].Took != c.at || !strings.Contains((*told)[0].Doubts.Error(), says) {
					t.Errorf("told %+v", *told)
				}
				testkit.Count(t, out.String(), "level=WARN", 1)
				testkit.Contains(t, out.String(), says)
				testkit.Contains(t, out.String(), "leader=a")
				time.Sleep(time.Minute) // it is visible
				r.control.Requeue(types.NamespacedName{Namespace: "default", Name: "a"})
				synctest.Wait()
				testkit.Equal(t, r.stale[len(r.stale)-1], nil, "Stale says when it is shown")
			})
		})
	}
}

// TestL9_AStopEndsTheWait without a Reconcile.
func TestL9_AStopEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, told := takingOver(t, controller.Options{})
		r.api.Lag(time.Minute)
		s := r.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("s"), Data: map[string][]byte{"k": nil}})
		stop := r.takeOver(wrote("secrets", "s", string(s.GetUID()), s.GetResourceVersion(), ledger.Stored))
		time.Sleep(10 * time.Second)
		began := time.Now()
		stop()
		testkit.Equal(t, time.Since(began), 0)
		testkit.Len(t, r.at, 0)
		testkit.Len(t, *told, 0)
	})
}
