// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// plain is a controller in the style of client-go's sample: event handlers fill a queue, and
// workers empty it.
type plain struct {
	queue   workqueue.TypedRateLimitingInterface[toolscache.ObjectName]
	synced  toolscache.InformerSynced
	workers int
	sync    func(ctx context.Context, name toolscache.ObjectName) error
}

// newPlain returns a controller for the objects of an informer. The queue has the host's metrics.
func newPlain(name string, informer toolscache.SharedIndexInformer, workers int, sync func(context.Context, toolscache.ObjectName) error) (*plain, error) {
	p := &plain{
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[toolscache.ObjectName](),
			workqueue.TypedRateLimitingQueueConfig[toolscache.ObjectName]{Name: name}),
		workers: workers, sync: sync,
	}
	add := func(obj any) {
		if object, err := toolscache.DeletionHandlingObjectToName(obj); err == nil {
			p.queue.Add(object)
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
	})
	if err != nil {
		return nil, err
	}
	p.synced = handler.HasSynced
	return p, nil
}

// run takes keys until take is done. It works with the context work, and returns when the work has
// ended.
func (p *plain) run(take, work context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	defer p.queue.ShutDown()
	if !toolscache.WaitForCacheSync(take.Done(), p.synced) {
		return nil
	}
	for range p.workers {
		workers.Go(func() {
			wait.UntilWithContext(take, func(context.Context) {
				for p.next(take, work) {
				}
			}, time.Second)
		})
	}
	<-take.Done()
	return nil
}

func (p *plain) next(take, work context.Context) bool {
	name, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(name)
	if take.Err() != nil {
		return false // the next leader takes the remaining keys
	}
	if err := p.sync(work, name); err != nil {
		utilruntime.HandleErrorWithContext(work, err, "sync failed", "object", name)
		p.queue.AddRateLimited(name)
		return true
	}
	p.queue.Forget(name)
	return true
}

// robots gives each namespace with a team a ServiceAccount for its robots.
func robots(h *host) (*plain, error) {
	namespaces, accounts := h.factory.Core().V1().Namespaces(), h.factory.Core().V1().ServiceAccounts().Lister()
	return newPlain("robots", namespaces.Informer(), h.options.workers, func(ctx context.Context, name toolscache.ObjectName) error {
		return syncRobot(ctx, namespaces.Lister(), accounts, h.clients, name.Name)
	})
}

func syncRobot(ctx context.Context, namespaces corelisters.NamespaceLister, accounts corelisters.ServiceAccountLister, clients kubernetes.Interface, name string) error {
	namespace, err := namespaces.Get(name)
	if err != nil || namespace.Labels[teamLabel] == "" || namespace.DeletionTimestamp != nil {
		return ignoreNotFound(err)
	}
	if _, err := accounts.ServiceAccounts(name).Get("robot"); !apierrors.IsNotFound(err) {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot", Namespace: name}}
	if _, err = clients.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return nil // the informer will show it
	}
	return err
}

// sweeper deletes the Secrets that are marked for it.
func sweeper(h *host) (*plain, error) {
	secrets := h.factory.Core().V1().Secrets()
	return newPlain("sweeper", secrets.Informer(), h.options.workers, func(ctx context.Context, name toolscache.ObjectName) error {
		secret, err := secrets.Lister().Secrets(name.Namespace).Get(name.Name)
		if err != nil || secret.Labels[sweepLabel] != "true" {
			return ignoreNotFound(err)
		}
		only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(secret.UID))}
		return ignoreNotFound(h.clients.CoreV1().Secrets(name.Namespace).Delete(ctx, name.Name, only))
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
