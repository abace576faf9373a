// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	theircache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	theirs "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
)

// Host lets controllers of Setpoint run in a manager of controller-runtime, under its leader
// election and over its informers: the step that changes least.
//
//	host, err := crbridge.NewHost(mgr, client.Options{FieldOwner: "website"})
//	websites, err := crbridge.Adopt[*v1.Website](host)
//	c := controller.New("website", reconciler, controller.Options{})
//	c.Watch(source.Kind(websites, handler.Self()))
//	err = host.Add(c)
//
// A Reconcile sees its key's previous writes, and package why explains keys. What belongs to the
// manager stays controller-runtime's: a lost Lease does not fence writes, and objects are stored
// decoded. When the manager stops, or has lost its Lease, running Reconciles may go on for 25
// seconds, unless the process ends.
type Host struct {
	mgr    theirs.Manager
	client *client.Client
	cache  *cache.Cache
}

// NewHost makes a client with the manager's configuration, and a cache that adopts its informers.
func NewHost(mgr theirs.Manager, o client.Options) (*Host, error) {
	if _, ok := mgr.(*Bridge); ok {
		return nil, errors.New("crbridge: the manager is Setpoint's already; use the one that its method Setpoint returns")
	}
	if o.Scheme == nil {
		o.Scheme = mgr.GetScheme()
	}
	c, err := client.New(mgr.GetConfig(), o)
	if err != nil {
		return nil, err
	}
	h := &Host{mgr, c, cache.New(c, cache.Options{})}
	return h, mgr.Add(everywhere{func(ctx context.Context) error {
		defer c.Close()
		return h.cache.Run(ctx)
	}})
}

// Client returns the client for the writes of Reconciles.
func (h *Host) Client() *client.Client { return h.client }

// Cache returns the cache. Handles that Adopt does not make have informers of their own.
func (h *Host) Cache() *cache.Cache { return h.cache }

// Add adds a controller, such as *controller.Controller, which runs while the process leads.
func (h *Host) Add(c interface {
	Name() string
	Run(ctx context.Context) error
}) error {
	return h.mgr.Add(theirs.RunnableFunc(func(ctx context.Context) error {
		if err := c.Run(ctx); err != nil {
			return fmt.Errorf("controller %q: %w", c.Name(), err)
		}
		return nil
	}))
}

// Adopt returns a handle over the manager's informer of a kind. T is a typed object of the scheme.
func Adopt[T cache.Object](h *Host) (*cache.Handle[T], error) {
	gvk, err := kindOfType[T](h)
	if err != nil {
		return nil, err
	}
	informer, err := h.mgr.GetCache().GetInformerForKind(context.Background(), gvk, theircache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("crbridge: the informer of %s: %w", gvk.Kind, err)
	}
	return cache.Adopt[T](h.cache, informer, cache.AdoptOptions{}), nil
}

func kindOfType[T cache.Object](h *Host) (schema.GroupVersionKind, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer {
		return schema.GroupVersionKind{}, fmt.Errorf("crbridge: %s is no pointer to an API type, such as *corev1.Pod", t)
	}
	obj, ok := reflect.New(t.Elem()).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionKind{}, fmt.Errorf("crbridge: %s is no API type", t)
	}
	return apiutil.GVKForObject(obj, h.mgr.GetScheme())
}

// everywhere is a Runnable that needs no Lease.
type everywhere struct{ theirs.RunnableFunc }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }
