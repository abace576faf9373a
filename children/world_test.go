// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

var (
	owners   = sim.Resource{Version: "v1", Kind: "ServiceAccount", Name: "serviceaccounts", Namespaced: true}
	secrets  = sim.Resource{Version: "v1", Kind: "Secret", Name: "secrets", Namespaced: true}
	services = sim.Resource{Version: "v1", Kind: "Service", Name: "services", Namespaced: true}
)

const finish = "example.com/children"

// world is an operator whose owners are ServiceAccounts.
type world struct {
	t   *testing.T
	api *sim.Server

	unwatched bool
	tooling   string

	cfg  *rest.Config // of the running operator
	stop func()
	mgr  *manager.Manager
	set  *children.Set[*corev1.ServiceAccount]

	mu      sync.Mutex // guards what follows
	desired map[string][]client.ApplyConfiguration
	results map[string]children.Result
	errs    map[string]error
	seen    []string // Changes of the results
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, api: sim.New(t, scheme.Scheme)}
	w.init()
	return w
}

func (w *world) init() {
	w.desired, w.results, w.errs = map[string][]client.ApplyConfiguration{}, map[string]children.Result{}, map[string]error{}
	w.start()
}

// start begins the operator. Its kinds are ConfigMaps, Services and Deployments.
func (w *world) start() {
	w.cfg = w.api.Config()
	mgr := manager.New(w.cfg, manager.Options{Name: "owners", Scheme: scheme.Scheme, Logger: slog.New(slog.DiscardHandler)})
	w.mgr = mgr
	all := cache.For[*corev1.ServiceAccount](mgr.Cache())
	configMaps, svcs := cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Service](mgr.Cache())
	deployments, roles := cache.For[*appsv1.Deployment](mgr.Cache()), cache.For[*rbacv1.ClusterRole](mgr.Cache())
	var err error
	w.set, err = children.New(all, mgr.Client(), children.Of(configMaps), children.Of(svcs), children.Of(deployments), children.Of(roles))
	testkit.NoError(w.t, err)
	c := controller.New("owners", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		owner, err := all.Get(ctx, key)
		if apierrors.IsNotFound(err) {
			return controller.Result{}, nil
		} else if err != nil {
			return controller.Result{}, err
		}
		return controller.Result{}, w.reconcile(ctx, owner, client.For[*corev1.ServiceAccount](mgr.Client()))
	}), controller.Options{})
	c.Watch(source.Kind(all, handler.Self()))
	if w.tooling != "" {
		w.set.ApplySet(w.tooling)
	}
	if !w.unwatched {
		w.set.Watch(c)
	}
	mgr.Add(c)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Run(ctx) }()
	w.stop = func() {
		cancel()
		testkit.Equal(w.t, <-done, nil)
	}
}

func (w *world) restart() {
	w.stop()
	w.start()
}

// crash is a restart of an operator whose requests have all failed before.
func (w *world) crash() {
	w.api.Add(fault.Rule{Match: fault.Match{Config: w.cfg}, Cut: true})
	w.api.Cut(fault.Match{Config: w.cfg})
	w.restart()
}

func (w *world) reconcile(ctx context.Context, owner *corev1.ServiceAccount, h *client.Handle[*corev1.ServiceAccount]) error {
	w.mu.Lock()
	desired := w.desired[owner.Name]
	w.mu.Unlock()
	var result children.Result
	var err error
	if owner.DeletionTimestamp != nil {
		if !finalizer.Has(owner, finish) {
			return nil
		}
		if result, err = w.set.Delete(ctx, owner, desired...); err == nil {
			_, err = h.RemoveFinalizer(ctx, owner, finish)
		}
	} else {
		result, err = w.set.Reconcile(ctx, owner, desired...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.results[owner.Name], w.errs[owner.Name] = result, err
	if changes := result.Changes(); changes != "" {
		w.seen = append(w.seen, changes)
	}
	if finalizer.IsWaiting(err) {
		err = nil
	}
	return err
}

// want sets an owner's desired children, and waits until the operator is idle.
func (w *world) want(owner string, desired ...client.ApplyConfiguration) children.Result {
	w.t.Helper()
	w.mu.Lock()
	w.desired[owner] = desired
	w.mu.Unlock()
	return w.touch(owner)
}

// touch changes an owner, and waits until the operator is idle.
func (w *world) touch(owner string) children.Result {
	w.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: owner, Annotations: map[string]string{"touched": time.Now().String()}}}
	if old := w.api.Object(owners, "default", owner); old != nil {
		sa.Finalizers = old.GetFinalizers()
	}
	w.api.Put(owners, sa)
	return w.idle(owner)
}

func (w *world) idle(owner string) children.Result {
	time.Sleep(10 * time.Second)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.results[owner]
}

func (w *world) err(owner string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.errs[owner]
}

// writes returns the number of requests that change something.
func (w *world) writes() (n int) {
	for _, r := range w.api.Requests() {
		switch r.Verb {
		case "get", "list", "watch", "discover":
		default:
			if r.Resource.Resource != "leases" && r.Resource.Resource != "selfsubjectaccessreviews" {
				n++
			}
		}
	}
	return n
}

func (w *world) states(owner string) (text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.results[owner].String()
}

func (w *world) object(in sim.Resource, name string) *unstructured.Unstructured {
	return w.api.Object(in, "default", name)
}

// value returns the value of a ConfigMap, or "".
func (w *world) value(name string) string {
	cm := w.object(sim.ConfigMaps, name)
	if cm == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(cm.Object, "data", "key")
	return value
}

// rollOut makes a Deployment ready.
func (w *world) rollOut(name string) {
	d := w.object(sim.Deployments, name)
	d.Object["status"] = map[string]any{
		"observedGeneration": d.GetGeneration(), "replicas": int64(1), "updatedReplicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1),
		"conditions": []any{map[string]any{"type": "Available", "status": "True"}, map[string]any{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}},
	}
	w.api.Put(sim.Deployments, d)
	w.idle("")
}

func (w *world) deleteOwner(name string) {
	c, err := client.New(w.api.Config(), client.Options{Scheme: scheme.Scheme})
	if err == nil {
		err = client.For[*corev1.ServiceAccount](c).Delete(w.t.Context(), types.NamespacedName{Namespace: "default", Name: name})
		c.Close()
	}
	testkit.NoError(w.t, err)
	w.idle(name)
}

func configMap(name, value string) *coreac.ConfigMapApplyConfiguration {
	return coreac.ConfigMap(name, "default").WithData(map[string]string{"key": value})
}

func service(name string) *coreac.ServiceApplyConfiguration {
	return coreac.Service(name, "").WithSpec(coreac.ServiceSpec().WithSelector(map[string]string{"app": name}).WithPorts(coreac.ServicePort().WithPort(80)))
}

func rollout(name string, app string) *appsac.DeploymentApplyConfiguration {
	labels := map[string]string{"app": app}
	return appsac.Deployment(name, "default").WithSpec(appsac.DeploymentSpec().
		WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
			WithContainers(coreac.Container().WithName("main").WithImage("busybox")))))
}

func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer func() { w.stop() }()
		f(t, w)
	})
}

// owner returns an owner as stored.
func (w *world) owner(name string) *corev1.ServiceAccount {
	sa := &corev1.ServiceAccount{}
	sa.Namespace, sa.Name, sa.UID = "default", name, w.object(owners, name).GetUID()
	return sa
}
