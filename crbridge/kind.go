// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

// kind is a handle of the cache, in any form.
type kind interface {
	controller.Readable
	handler.Kind

	State() hook.InformerState
	validate() error
	get(ctx context.Context, key types.NamespacedName, shared bool) (client.Object, error)
	list(ctx context.Context, o *client.ListOptions) ([]client.Object, error)
	index(field string, values client.IndexerFunc) error
	subscribe(h toolscache.ResourceEventHandler) (*cache.Subscription, error)
	source(h handler.Handler[types.NamespacedName], predicates []handler.Predicate) source.Source[types.NamespacedName]
	readable() controller.Readable
	synced() bool
	release()
	released() bool
}

// kindOf is a kind whose objects are in the form T.
type kindOf[T cache.Object] struct {
	*cache.Handle[T]

	shared *cache.Handle[T]
	gone   atomic.Bool // it was released

	mu      sync.RWMutex
	indexes map[string]*index[T]
}

type index[T cache.Object] struct {
	*cache.Index[T]

	values client.IndexerFunc
}

func newKind[T cache.Object](c *cache.Cache, s cache.Scope) *kindOf[T] {
	h := cache.ForScope[T](c, s)
	return &kindOf[T]{Handle: h, shared: h.Shared(), indexes: map[string]*index[T]{}}
}

func (k *kindOf[T]) validate() error { return k.Validate() }

func (k *kindOf[T]) readable() controller.Readable { return k.Handle }

func (k *kindOf[T]) release() {
	k.gone.Store(true)
	k.Release()
}

func (k *kindOf[T]) released() bool { return k.gone.Load() }

func (k *kindOf[T]) synced() bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return k.WaitForSync(ended) == nil
}

func (k *kindOf[T]) subscribe(h toolscache.ResourceEventHandler) (*cache.Subscription, error) {
	return k.Subscribe(h)
}

func (k *kindOf[T]) source(h handler.Handler[types.NamespacedName], predicates []handler.Predicate) source.Source[types.NamespacedName] {
	return source.Kind(k.Handle, h, predicates...)
}

func (k *kindOf[T]) handle(shared bool) *cache.Handle[T] {
	if shared {
		return k.shared
	}
	return k.Handle
}

func (k *kindOf[T]) get(ctx context.Context, key types.NamespacedName, shared bool) (client.Object, error) {
	obj, err := k.handle(shared).Get(ctx, key)
	if err != nil && key.Namespace != "" { // controller-runtime ignores it for cluster-scoped kinds
		if namespaced, unknown := k.Namespaced(); unknown == nil && !namespaced {
			return k.handle(shared).Get(ctx, types.NamespacedName{Name: key.Name})
		}
	}
	return obj, err
}

func (k *kindOf[T]) list(ctx context.Context, o *client.ListOptions) ([]client.Object, error) {
	shared := o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy
	own := cache.ListOptions{Namespace: o.Namespace, Labels: o.LabelSelector, Limit: int(o.Limit)}
	found, rest, err := k.find(ctx, o.FieldSelector, own, shared)
	if err != nil {
		return nil, err
	}
	all := make([]client.Object, 0, len(found))
	for _, obj := range found {
		if rest == nil || rest(obj) {
			all = append(all, obj)
		}
		if o.Limit > 0 && int64(len(all)) == o.Limit {
			break
		}
	}
	return all, nil
}

// find lists by the index of the first field. rest checks the others.
func (k *kindOf[T]) find(ctx context.Context, selector fields.Selector, o cache.ListOptions, shared bool) (found []T, rest func(T) bool, err error) {
	if selector == nil || selector.Empty() {
		found, err = k.handle(shared).List(ctx, o)
		return found, nil, err
	}
	requirements := selector.Requirements()
	indexes := make([]*index[T], len(requirements))
	k.mu.RLock()
	for i, r := range requirements {
		indexes[i] = k.indexes[r.Field]
	}
	k.mu.RUnlock()
	for i, r := range requirements {
		if r.Operator != "=" && r.Operator != "==" {
			return nil, nil, fmt.Errorf("crbridge: the cache cannot select %s%s%s; use =, or read with the manager's APIReader", r.Field, r.Operator, r.Value)
		}
		if indexes[i] == nil {
			return nil, nil, fmt.Errorf("crbridge: %s has no index for the field %s; add one with mgr.GetFieldIndexer().IndexField", k, r.Field)
		}
	}
	if len(requirements) > 1 {
		o.Limit = 0 // it counts what all fields select
		rest = func(obj T) bool {
			for i, r := range requirements[1:] {
				if !slices.Contains(indexes[i+1].values(obj), r.Value) {
					return false
				}
			}
			return true
		}
	}
	found, err = indexes[0].List(ctx, requirements[0].Value, o)
	return found, rest, err
}

func (k *kindOf[T]) index(field string, values client.IndexerFunc) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.indexes[field] != nil {
		return fmt.Errorf("crbridge: %s has an index for the field %s already; declare it once", k, field)
	}
	own := cache.NewIndex(k.Handle, field, func(obj T) []string { return values(obj) })
	k.indexes[field] = &index[T]{own, values}
	return nil
}
