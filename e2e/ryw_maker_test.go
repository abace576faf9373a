// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// isParent is the label of a maker's ConfigMaps.
const isParent = "scenario.setpoint.dev/parent"

// maker is an operator behind its own proxy. For each parent without a Secret in its cache, it
// creates one, named by the API server.
type maker struct {
	name      string
	heeds     bool // it returns what Stale says
	namespace string
	proxy     *fault.Proxy
	direct    kubernetes.Interface
	http      *http.Client
	manager   *manager.Manager
	maps      *cache.Handle[*corev1.ConfigMap]
	secrets   *cache.Handle[*corev1.Secret]
	log       *logCounts
	late      atomic.Int64  // delays the first event of watches of Secrets, in nanoseconds
	before    func()        // is called before the first Secret is created
	made      chan struct{} // closed when the first Secret is there
	stop      context.CancelFunc
	stopped   chan error

	starts, sawStale, retried, complete atomic.Int64
	creates                             atomic.Int64
}

func newMaker(ctx context.Context, name string, heeds bool) (*maker, error) {
	m := &maker{name: name, heeds: heeds, log: &logCounts{}, made: make(chan struct{}), stopped: make(chan error, 1)}
	var err error
	if m.namespace, err = cluster.Namespace(ctx, "maker-"); err != nil {
		return nil, err
	}
	admin := cluster.Config()
	if m.http, err = rest.HTTPClientFor(admin); err != nil {
		return nil, err
	}
	if m.direct, err = kubernetes.NewForConfigAndClient(admin, m.http); err != nil {
		return nil, err
	}
	if m.proxy, err = fault.Start(ctx, cluster.Config(), fault.Options{}); err != nil {
		return nil, err
	}
	cfg, err := m.proxy.Config()
	if err != nil {
		return nil, err
	}
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return lateWatch{base, &m.late} })
	m.manager = manager.New(cfg, manager.Options{Name: name, Logger: slog.New(logCounter{logCounts: m.log})})
	here := cache.NewSet(m.namespace)
	m.maps = cache.ForScope[*corev1.ConfigMap](m.manager.Cache(), cache.Scope{
		Namespaces: here, Labels: labels.SelectorFromSet(labels.Set{isParent: ""}),
	})
	m.secrets = cache.ForScope[*corev1.Secret](m.manager.Cache(), cache.Scope{Namespaces: here})
	return m, nil
}

// controller returns a new controller, of the same name each time.
func (m *maker) controller() *controller.Controller[types.NamespacedName] {
	q := workqueue.Options[types.NamespacedName]{Hook: hook.On(func(e *hook.QueueSettled) {
		if e.Outcome == hook.QueueRetry {
			m.retried.Add(1)
		}
	})}
	c := controller.NewWithQueue(m.name, m, controller.Options{Workers: 4}, q)
	c.Watch(source.Kind(m.maps, handler.Self()))
	c.Watch(source.Kind(m.secrets, handler.Owner(m.maps)))
	return c
}

func (m *maker) run(ctx context.Context) {
	running, stop := context.WithCancel(ctx)
	m.stop = stop
	go func() { m.stopped <- m.manager.Run(running) }() // joined in end
}

// end stops everything. It adds to the error of the round.
func (m *maker) end(err *error) {
	if m.stop != nil {
		m.stop()
		*err = errors.Join(*err, <-m.stopped)
	}
	m.manager.Client().Close()
	m.http.CloseIdleConnections()
	m.proxy.Stop()
}

func (m *maker) parent(ctx context.Context, name string) error {
	_, err := m.direct.CoreV1().ConfigMaps(m.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{isParent: ""}},
	}, metav1.CreateOptions{})
	return err
}

// touch changes a parent.
func (m *maker) touch(ctx context.Context, name string) error {
	patch := fmt.Appendf(nil, `{"data":{"touched":%q}}`, time.Now().String())
	_, err := m.direct.CoreV1().ConfigMaps(m.namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// quiet gives due keys the time to be reconciled.
func (m *maker) quiet(ctx context.Context) error {
	lapse(ctx, 20*time.Millisecond)
	return context.Cause(ctx)
}

// Reconcile implements controller.Reconciler.
func (m *maker) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m.starts.Add(1)
	if err := controller.Stale(ctx); err != nil {
		m.sawStale.Add(1)
		if m.heeds {
			return controller.Result{}, err
		}
	}
	parent, err := m.maps.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	} else if err != nil {
		return controller.Result{}, err
	}
	mine, err := client.Collect(m.secrets.Owned(ctx, parent.UID, cache.ListOptions{}))
	if err != nil {
		return controller.Result{}, err
	}
	defer m.complete.Add(1)
	if len(mine) > 0 {
		return controller.Result{}, nil
	}
	first := m.creates.Add(1) == 1
	if first && m.before != nil {
		m.before()
	}
	_, err = client.For[*corev1.Secret](m.manager.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, GenerateName: key.Name + "-",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}})
	if first && err == nil {
		close(m.made)
	}
	return controller.Result{}, err
}
