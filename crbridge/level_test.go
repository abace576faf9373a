// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	theirs "sigs.k8s.io/controller-runtime"
	theircache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// levels complete a controller for ConfigMaps that own Secrets.
var levels = map[string]func(ctrl.Manager, reconcile.Reconciler) error{
	"level a": func(mgr ctrl.Manager, r reconcile.Reconciler) error {
		return theirs.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(r)
	},
	"level b": func(mgr ctrl.Manager, r reconcile.Reconciler) error {
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(r)
	},
}

func eachLevel(t *testing.T, test func(t *testing.T, complete func(ctrl.Manager, reconcile.Reconciler) error)) {
	t.Helper()
	for name, complete := range levels {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, complete) })
		})
	}
}

func secrets(t *testing.T, server *sim.Server) []corev1.Secret {
	t.Helper()
	var list corev1.SecretList
	testkit.NoError(t, newClient(t, server.Config()).List(t.Context(), &list))
	return list.Items
}

func elected() ctrl.Options {
	return ctrl.Options{LeaderElection: true, LeaderElectionID: "bridge", LeaderElectionNamespace: "default"}
}

// TestStop_LetsReconcilesFinish: a stop takes no new key, and the context of a running Reconcile
// goes on. controller-runtime ends it at once.
func TestStop_LetsReconcilesFinish(t *testing.T) {
	eachLevel(t, func(t *testing.T, complete func(ctrl.Manager, reconcile.Reconciler) error) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
		server.Put(sim.ConfigMaps, configMap("a"))
		mgr := managerOn(t, server.Config(), elected(), ctrl.Settings{})
		begun := make(chan struct{})
		var finished error
		err := complete(mgr, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			close(begun)
			time.Sleep(5 * time.Second)
			finished = mgr.GetClient().Create(ctx, &corev1.Secret{ObjectMeta: configMap(r.Name).ObjectMeta})
			return ctrl.Result{}, finished
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		<-begun
		ended(t, stop)
		if finished != nil || len(secrets(t, server)) != 1 {
			t.Errorf("the write of the running Reconcile failed: %v", finished)
		}
	})
}

// TestReconciliationTimeout: the limit of a Reconcile holds at both levels.
func TestReconciliationTimeout(t *testing.T) {
	eachLevel(t, func(t *testing.T, complete func(ctrl.Manager, reconcile.Reconciler) error) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		server.Put(sim.ConfigMaps, configMap("a"))
		o := ctrl.Options{Controller: config.Controller{ReconciliationTimeout: 3 * time.Second}}
		mgr := managerOn(t, server.Config(), o, ctrl.Settings{})
		why := make(chan error, 10)
		err := complete(mgr, reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			why <- ctx.Err()
			return ctrl.Result{}, reconcile.TerminalError(ctx.Err())
		}))
		testkit.NoError(t, err)
		defer ended(t, start(t, mgr))
		testkit.ErrorIs(t, <-why, context.DeadlineExceeded, "the context of the Reconcile ended with")
	})
}

// TestLostLease: a write after a lost Lease is refused.
func TestLostLease(t *testing.T) {
	eachLevel(t, func(t *testing.T, complete func(ctrl.Manager, reconcile.Reconciler) error) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
		server.Put(sim.ConfigMaps, configMap("a"))
		mgr := managerOn(t, server.Config(), elected(), ctrl.Settings{})
		written := make(chan error, 1)
		var once atomic.Bool
		err := complete(mgr, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			if once.Swap(true) {
				return ctrl.Result{}, nil
			}
			server.Add(fault.Rule{Match: fault.Match{Resources: []string{"leases"}}, Refuse: apierrors.NewInternalError(errors.New("etcd"))})
			time.Sleep(20 * time.Second)
			err := mgr.GetClient().Create(ctx, &corev1.Secret{ObjectMeta: configMap(r.Name).ObjectMeta})
			written <- err
			return ctrl.Result{}, err
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		if err := <-written; !errors.Is(err, term.ErrFenced) && !errors.Is(err, context.Canceled) {
			t.Errorf("the write after the lost Lease returned %v", err)
		}
		synctest.Wait()
		testkit.Equal(t, len(secrets(t, server)), 0, "the write after the lost Lease was carried out")
		_ = stop() // level a ends with an error, because their controllers cannot start again
	})
}

// TestReadYourWrites: with watches that are late, a controller of level b creates one object for
// each key.
func TestReadYourWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		server.Lag(500 * time.Millisecond)
		mgr := managerOn(t, server.Config(), ctrl.Options{}, ctrl.Settings{})
		c := mgr.GetClient()
		var runs atomic.Int64
		err := levels["level b"](mgr, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			runs.Add(1)
			var owner corev1.ConfigMap
			if err := c.Get(ctx, r.NamespacedName, &owner); err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			var owned corev1.SecretList
			if err := c.List(ctx, &owned, client.InNamespace(r.Namespace), client.MatchingLabels{"of": r.Name}); err != nil {
				return ctrl.Result{}, err
			}
			if len(owned.Items) > 0 {
				return ctrl.Result{}, nil
			}
			child := &corev1.Secret{}
			child.GenerateName, child.Namespace, child.Labels = r.Name+"-", r.Namespace, map[string]string{"of": r.Name}
			if err := controllerutil.SetControllerReference(&owner, child, mgr.GetScheme()); err != nil {
				return ctrl.Result{}, err
			}
			return ctrl.Result{}, c.Create(ctx, child)
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		defer ended(t, stop)
		admin := newClient(t, server.Config())
		for n := range 10 {
			cm := configMap(fmt.Sprint("owner-", n))
			testkit.NoError(t, admin.Create(t.Context(), cm))
			time.Sleep(200 * time.Millisecond)
			cm.Data = map[string]string{"a": "b"} // an event before the create is shown
			testkit.NoError(t, admin.Update(t.Context(), cm))
		}
		time.Sleep(time.Minute)
		testkit.Equal(t, len(secrets(t, server)), 10, "Reconciles", runs.Load())
	})
}

// TestUndeclaredReads: a read of another kind declares it, or is an error.
func TestUndeclaredReads(t *testing.T) {
	for name, strict := range map[string]bool{"declares": false, "refuses": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Pods)
				server.Put(sim.ConfigMaps, configMap("a"))
				server.Put(sim.Pods, &corev1.Pod{ObjectMeta: configMap("a").ObjectMeta})
				mgr := managerOn(t, server.Config(), ctrl.Options{}, ctrl.Settings{RefuseUndeclared: strict})
				read := make(chan error, 100)
				err := levels["level b"](mgr, reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
					var found corev1.Pod
					err := mgr.GetClient().Get(ctx, r.NamespacedName, &found)
					if err == nil && found.Name != "a" {
						err = fmt.Errorf("read %+v", found)
					}
					read <- err
					return ctrl.Result{}, reconcile.TerminalError(err)
				}))
				testkit.NoError(t, err)
				stop := start(t, mgr)
				err = <-read
				ended(t, stop)
				if strict == (err == nil) || strict && !strings.Contains(err.Error(), "add it to Reads of its builder") {
					t.Errorf("the read returned %v", err)
				}
			})
		})
	}
}

// TestContext: the context of a Reconcile of level b has controller-runtime's ID and logger.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		server.Put(sim.ConfigMaps, configMap("a"))
		type key struct{}
		o := ctrl.Options{BaseContext: func() context.Context { return context.WithValue(context.Background(), key{}, "based") }}
		mgr := managerOn(t, server.Config(), o, ctrl.Settings{})
		got := make(chan string, 1)
		err := levels["level b"](mgr, reconcile.Func(func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			got <- fmt.Sprint(controller.ReconcileIDFromContext(ctx) != "", " ", ctx.Value(key{}), " ", ctrl.LoggerFrom(ctx).GetSink() != nil)
			return ctrl.Result{}, nil
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		defer ended(t, stop)
		testkit.Equal(t, <-got, "true based true", "the context has")
	})
}

// TestLostLease_EndsTheProcess: controllers of controller-runtime cannot start again.
func TestLostLease_EndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
		mgr := managerOn(t, server.Config(), elected(), ctrl.Settings{})
		r := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil })
		testkit.NoError(t, levels["level a"](mgr, r))
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(t.Context()) }()
		<-mgr.Elected()
		server.Add(fault.Rule{Match: fault.Match{Resources: []string{"leases"}}, Refuse: apierrors.NewInternalError(errors.New("etcd"))})
		testkit.ErrorContains(t, <-ended, "leader election lost", "Start returned")
	})
}

// TestOptions_WithoutACounterpart: an option is an error that names it and the remedy.
func TestOptions_WithoutACounterpart(t *testing.T) {
	server := sim.NewServer(sim.ConfigMaps)
	for want, o := range map[string]ctrl.Options{
		"probe /readyz":              {ReadinessEndpointName: "/ready"},
		"probe /healthz":             {LivenessEndpointName: "/live"},
		"LeaderElectionID is empty":  {LeaderElection: true},
		`only "leases" is supported`: {LeaderElection: true, LeaderElectionID: "a", LeaderElectionResourceLock: "configmaps"},
		"the cache is Setpoint's":    {NewCache: theircache.New},
	} {
		testkit.ErrorContains(t, testkit.Err(ctrl.NewManager(server.Config(), o)), want)
	}
}

// TestBuild_Refuses names what is nil, and a name that is taken.
func TestBuild_Refuses(t *testing.T) {
	mgr := managerOn(t, sim.NewServer(sim.ConfigMaps).Config(), ctrl.Options{}, ctrl.Settings{})
	r := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil })
	of := func() *ctrl.Builder { return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}) }
	for want, err := range map[string]error{
		"a predicate is nil":      of().WithEventFilter(nil).Complete(r),
		"a raw source is nil":     of().WatchesRawSource(nil).Complete(r),
		"no object or no handler": of().Watches(&corev1.Secret{}, nil).Complete(r),
		"its Reconciler is nil":   of().Complete(nil),
		`"nilled": its Recon`:     of().Named("nilled").Complete((*counting)(nil)),
		`"configmap": another co`: errors.Join(of().Complete(r), of().Complete(r)),
	} {
		testkit.ErrorContains(t, err, want)
	}
}

type counting struct{ runs int }

func (c *counting) Reconcile(context.Context, ctrl.Request) (ctrl.Result, error) {
	c.runs++
	return ctrl.Result{}, nil
}

// TestStop_WithoutLeaderElection: a stop right after the start takes no time, whether the sources
// or the workers of a controller have started first.
func TestStop_WithoutLeaderElection(t *testing.T) {
	eachLevel(t, func(t *testing.T, complete func(ctrl.Manager, reconcile.Reconciler) error) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		server.Put(sim.ConfigMaps, configMap("a"))
		for range 50 {
			mgr := managerOn(t, server.Config(), ctrl.Options{}, ctrl.Settings{})
			begun := make(chan struct{})
			err := complete(mgr, reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
				close(begun)
				return ctrl.Result{}, nil
			}))
			testkit.NoError(t, err)
			stop := start(t, mgr)
			<-begun
			stopping := time.Now()
			ended(t, stop)
			if took := time.Since(stopping); took > 5*time.Second {
				t.Fatalf("the stop took %v", took)
			}
		}
	})
}

// TestUnservedKind_StopsNoOtherController: an index, for example of an optional CRD, declares it.
func TestUnservedKind_StopsNoOtherController(t *testing.T) {
	eachLevel(t, func(t *testing.T, complete func(ctrl.Manager, reconcile.Reconciler) error) {
		server := sim.NewServer(sim.ConfigMaps, sim.Secrets)
		server.Put(sim.ConfigMaps, configMap("a"))
		mgr := managerOn(t, server.Config(), ctrl.Options{}, ctrl.Settings{})
		err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.Pod{}, "node", func(client.Object) []string { return nil })
		testkit.NoError(t, err)
		begun := make(chan struct{})
		err = complete(mgr, reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
			close(begun)
			return ctrl.Result{}, nil
		}))
		testkit.NoError(t, err)
		stop := start(t, mgr)
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Error("the controller of another kind does not reconcile")
		}
		ended(t, stop)
	})
}

// TestNames_MayRepeatAtLevelA: controller-runtime allows it with SkipNameValidation.
func TestNames_MayRepeatAtLevelA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps)
		server.Put(sim.ConfigMaps, configMap("a"))
		mgr := managerOn(t, server.Config(), ctrl.Options{}, ctrl.Settings{})
		var runs atomic.Int32
		for range 2 {
			err := theirs.NewControllerManagedBy(mgr).Named("same").For(&corev1.ConfigMap{}).Complete(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
				runs.Add(1)
				return ctrl.Result{}, nil
			}))
			testkit.NoError(t, err)
		}
		stop := start(t, mgr)
		time.Sleep(time.Second)
		ended(t, stop)
		testkit.Equal(t, runs.Load(), 2, "Reconciles")
	})
}
