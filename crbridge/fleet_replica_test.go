// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	theirs "sigs.k8s.io/controller-runtime"
	theircache "sigs.k8s.io/controller-runtime/pkg/cache"
	theirclient "sigs.k8s.io/controller-runtime/pkg/client"
	theirmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	ctrl "github.com/setpoint-dev/setpoint/crbridge"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// asReplica in the environment makes the test binary a replica of the mixed fleet.
const asReplica = "SETPOINT_FLEET_REPLICA"

// Programs of a fleet. They share the Lease, the options and the work.
const (
	programTheirs = "controller-runtime"
	programBridge = "level b"
	programNative = "native"
)

// orders is the configuration of a replica, on its standard input. When that closes, the driver is
// gone and the replica exits.
type orders struct {
	Program, Identity   string
	Host, Namespace     string
	CAData              []byte
	CertData, KeyData   []byte
	Lease, Renew, Retry time.Duration
	Unfenced            bool // writes carry no term
}

// Kinds of reports.
const (
	isWarm     = "warm"      // started, its caches are synced
	leads      = "leads"     // has written all versioned objects in the new term
	lost       = "lost"      // the writer of the term has ended
	reconciled = "reconcile" // began to reconcile Key
)

// report is one line on a replica's standard output.
type report struct {
	What string
	Key  string `json:",omitempty"`
	At   int64  // by the wall clock, which all processes of a machine share
}

// reporter writes each report immediately: a kill loses only unwritten ones.
type reporter struct {
	mu  sync.Mutex // one line at a time
	out io.Writer
}

func (r *reporter) tell(what, key string) {
	line, err := json.Marshal(report{what, key, time.Now().UnixNano()})
	if err != nil {
		panic(err) // impossible: it has plain fields only
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(append(line, '\n')) // fails only if the driver is gone
}

// replicaMain runs a replica and returns its exit status.
func replicaMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	r := &replica{reporter: &reporter{out: os.Stdout}}
	if err == nil {
		err = json.Unmarshal(line, &r.orders)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot read the replica's orders: %v\n", err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1) // the driver is gone
	}()
	log := funcr.New(func(_, args string) { fmt.Fprintln(os.Stderr, args) }, funcr.Options{LogTimestamp: true})
	theirs.SetLogger(log)
	if err := r.run(ctx); err != nil {
		log.Error(err, "ended")
		return 1
	}
	return 0
}

// replica is the work of one process.
type replica struct {
	orders
	*reporter
}

func (r *replica) run(ctx context.Context) error {
	cfg := &rest.Config{Host: r.Host, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: r.CAData, CertData: r.CertData, KeyData: r.KeyData}}
	switch r.Program {
	case programTheirs:
		return r.runTheirs(ctx, cfg)
	case programBridge:
		return r.runBridge(ctx, cfg)
	default:
		return r.runNative(ctx, cfg)
	}
}

// taskLabels are the labels of tasks.
var taskLabels = labels.Set{"example.com/task": "true"}

const leaseName = "fleet"

// options are the options of both programs with controller-runtime's interface.
func (r *replica) options() ctrl.Options {
	return ctrl.Options{
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: leaseName, LeaderElectionNamespace: r.Namespace,
		LeaseDuration: &r.Lease, RenewDeadline: &r.Renew, RetryPeriod: &r.Retry,
		// LeaderElectionReleaseOnCancel is not set: see TestClientGo_ReleasesTheLeaseOfAnother.
		// Level b always releases the Lease.
		Cache: theircache.Options{
			DefaultNamespaces: map[string]theircache.Config{r.Namespace: {}},
			ByObject:          map[theirclient.Object]theircache.ByObject{&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(taskLabels)}},
		},
	}
}

func (r *replica) runTheirs(ctx context.Context, cfg *rest.Config) error {
	o := r.options()
	// As controller-runtime makes it, but with an identity that the judge knows.
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, r.Namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: r.Identity}, cfg, r.Renew)
	if err != nil {
		return err
	}
	o.LeaderElectionResourceLockInterface = lock
	mgr, err := theirs.NewManager(cfg, o)
	if err != nil {
		return err
	}
	s := &theirStore{mgr.GetClient(), mgr.GetAPIReader(), r.Namespace}
	err = theirs.NewControllerManagedBy(mgr).Named("tasks").For(&corev1.ConfigMap{}).Complete(&theirReconciler{r, mgr.GetClient()})
	if err != nil {
		return err
	}
	w := &writer{r, s}
	if err := mgr.Add(theirmanager.RunnableFunc(w.lead)); err != nil {
		return err
	}
	if err := mgr.Add(everywhere(func(ctx context.Context) error {
		if mgr.GetCache().WaitForCacheSync(ctx) {
			r.tell(isWarm, "")
		}
		return nil
	})); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// everywhere is a Runnable that needs no Lease.
type everywhere func(context.Context) error

func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

func (everywhere) NeedLeaderElection() bool { return false }

func (r *replica) runBridge(ctx context.Context, cfg *rest.Config) error {
	mgr, err := ctrl.New(cfg, r.options(), ctrl.Settings{Configure: func(o *manager.Options) {
		if l, ok := o.LeaderElection.(*leaderelection.Options); ok {
			l.Identity = r.Identity
		}
	}})
	if err != nil {
		return err
	}
	s := &theirStore{mgr.GetClient(), mgr.GetAPIReader(), r.Namespace}
	err = ctrl.NewControllerManagedBy(mgr).Named("tasks").For(&corev1.ConfigMap{}).Complete(&theirReconciler{r, mgr.GetClient()})
	if err != nil {
		return err
	}
	r.addTo(mgr.Setpoint(), s)
	return mgr.Start(ctx)
}

// addTo adds the writer to a manager of Setpoint. A Runnable that level b adds to its manager would
// end the process with its term; this one shows a process that goes on.
func (r *replica) addTo(mgr *manager.Manager, s store) {
	mgr.AddLeaderOnly("the writer", (&writer{r, s}).lead)
	mgr.AddEverywhere("readiness", func(ctx context.Context) error {
		if mgr.WaitReady(ctx) == nil {
			r.tell(isWarm, "")
		}
		return nil
	})
}

func (r *replica) runNative(ctx context.Context, cfg *rest.Config) error {
	mgr := manager.New(cfg, manager.Options{
		Name: leaseName,
		LeaderElection: &leaderelection.Options{
			Lease: leaseName, Namespace: r.Namespace, Identity: r.Identity,
			LeaseDuration: r.Lease, RenewDeadline: r.Renew, RetryPeriod: r.Retry,
		},
	})
	tasks := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Namespaces: cache.NewSet(r.Namespace), Labels: labels.SelectorFromSet(taskLabels)})
	writes := client.For[*corev1.ConfigMap](mgr.Client())
	c := controller.New("tasks", &nativeReconciler{r, tasks, writes}, controller.Options{})
	c.Watch(source.Kind(tasks, handler.Self()))
	mgr.Add(c)
	r.addTo(mgr, &nativeStore{writes, r.Namespace})
	return mgr.Run(ctx)
}

// theirReconciler does the tasks: it writes its identity into each.
type theirReconciler struct {
	*replica

	client theirclient.Client
}

// Reconcile implements reconcile.Reconciler.
func (r *theirReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.tell(reconciled, req.Name)
	task := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, req.NamespacedName, task); err != nil || task.Data["by"] != "" {
		return reconcile.Result{}, theirclient.IgnoreNotFound(err)
	}
	task.Data = map[string]string{"by": r.Identity}
	return reconcile.Result{}, r.client.Update(r.fenced(ctx), task)
}

// nativeReconciler is theirReconciler with Setpoint's interface.
type nativeReconciler struct {
	*replica

	tasks  *cache.Handle[*corev1.ConfigMap]
	writes *client.Handle[*corev1.ConfigMap]
}

// Reconcile implements controller.Reconciler.
func (r *nativeReconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	r.tell(reconciled, key.Name)
	task, err := r.tasks.Get(ctx, key)
	if err != nil || task.Data["by"] != "" {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	task.Data = map[string]string{"by": r.Identity}
	_, err = r.writes.Update(r.fenced(ctx), task)
	return controller.Result{}, err
}
