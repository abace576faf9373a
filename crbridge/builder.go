// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	theircontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	theirhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	theirsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// Builder has the methods of controller-runtime's builder, and makes a controller of Setpoint. It
// takes the options of package builder.
type Builder struct {
	mgr     Manager
	name    string
	object  client.Object // of For, or nil
	watches []watch       // the one of For is the first
	raw     []theirsource.Source
	filters []predicate.Predicate
	reads   []client.Object
	options theircontroller.Options
	wrong   []error
}

// watch is a call of For, Owns or Watches.
type watch struct {
	object client.Object
	option watchOption
	owned  bool
	by     theirhandler.EventHandler // of Watches
}

// NewControllerManagedBy returns a builder for a controller of a manager that NewManager returned.
func NewControllerManagedBy(mgr Manager) *Builder { return &Builder{mgr: mgr} }

// For sets the kind that is reconciled. Call it at most once.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	if b.object != nil {
		b.wrong = append(b.wrong, errors.New("For(...) should only be called once, could not assign multiple objects for reconciliation"))
		return b
	}
	o, err := optionOf(opts)
	b.wrong = append(b.wrong, err)
	b.object, b.watches = object, append([]watch{{object: object, option: o}}, b.watches...)
	return b
}

// Owns makes the owner due when an object of this kind changes.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	o, err := optionOf(opts)
	b.wrong = append(b.wrong, err)
	b.watches = append(b.watches, watch{object: object, option: o, owned: true})
	return b
}

// Watches gives the events of a kind to a handler.
func (b *Builder) Watches(object client.Object, by theirhandler.EventHandler, opts ...builder.WatchesOption) *Builder {
	o, err := optionOf(opts)
	b.wrong = append(b.wrong, err)
	b.watches = append(b.watches, watch{object: object, option: o, by: by})
	return b
}

// WatchesMetadata is Watches for the metadata of a kind.
func (b *Builder) WatchesMetadata(object client.Object, by theirhandler.EventHandler, opts ...builder.WatchesOption) *Builder {
	return b.Watches(object, by, append(opts, builder.OnlyMetadata)...)
}

// WatchesRawSource adds a source. Package why does not look into it.
func (b *Builder) WatchesRawSource(src theirsource.Source) *Builder {
	b.raw = append(b.raw, src)
	return b
}

// Reads declares kinds that Reconcile reads and does not watch. Controller-runtime's builder has no
// such method.
func (b *Builder) Reads(objects ...client.Object) *Builder {
	b.reads = append(b.reads, objects...)
	return b
}

// WithEventFilter adds a predicate for all watches, but not for raw sources.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.filters = append(b.filters, p)
	return b
}

// WithOptions sets the controller's options. Those without a counterpart are errors of Build, or
// the log names what happens instead.
func (b *Builder) WithOptions(o theircontroller.Options) *Builder {
	b.options = o
	return b
}

// WithLogConstructor sets the logger of Reconciles.
func (b *Builder) WithLogConstructor(f func(*reconcile.Request) logr.Logger) *Builder {
	b.options.LogConstructor = f
	return b
}

// Named sets the controller's name. Default: the kind of For in lower case.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	return b
}

// Complete is Build without the controller.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build makes the controller and adds it to the manager. The result's Start returns an error: the
// manager starts it.
func (b *Builder) Build(r reconcile.Reconciler) (theircontroller.Controller, error) {
	made, err := b.build(r)
	if err != nil {
		return nil, fmt.Errorf("crbridge: the controller %q: %w", b.name, err)
	}
	return made, nil
}

func (b *Builder) build(r reconcile.Reconciler) (*built, error) {
	bridge, ok := b.mgr.(*Bridge)
	if !ok {
		return nil, fmt.Errorf("its manager is %T; make it with crbridge.NewManager", b.mgr)
	}
	if r != nil && b.options.Reconciler != nil {
		return nil, errors.New("Complete and WithOptions both have a Reconciler; set one")
	} else if r == nil {
		r = b.options.Reconciler
	}
	if r == nil || reflect.ValueOf(r).Kind() == reflect.Pointer && reflect.ValueOf(r).IsNil() {
		return nil, errors.New("its Reconciler is nil")
	}
	kind, err := b.kind()
	if err = errors.Join(append(b.wrong, err, b.check())...); err != nil {
		return nil, err
	}
	made, err := newBuilt(bridge, b.name, kind, r, b.options)
	if err != nil {
		return nil, err
	}
	if err := b.watchAll(made); err != nil {
		return nil, err
	}
	if err := bridge.claim(b.name); err != nil {
		return nil, err
	}
	made.add()
	return made, nil
}

func (b *Builder) check() error {
	for _, w := range b.watches {
		if w.object == nil || !w.owned && w.by == nil && w.object != b.object {
			return errors.New("a watch has no object or no handler")
		}
		if slices.Contains(append(w.option.predicates, b.filters...), nil) {
			return errors.New("a predicate is nil; leave it out")
		}
		if w.owned && b.object == nil {
			return errors.New("Owns() can only be used together with For(), whose kind the owners have")
		}
	}
	if slices.Contains(b.raw, nil) {
		return errors.New("a raw source is nil; leave it out")
	}
	if len(b.watches)+len(b.raw) == 0 {
		return errors.New("there are no watches configured, controller will never get triggered. Use For(), Owns(), Watches() or WatchesRawSource() to set them up")
	}
	return nil
}

// kind returns the kind of For, and sets the name.
func (b *Builder) kind() (schema.GroupVersionKind, error) {
	if b.object == nil {
		if b.name == "" {
			return schema.GroupVersionKind{}, errors.New("one of For() or Named() must be called")
		}
		return schema.GroupVersionKind{}, nil
	}
	gvk, err := apiutil.GVKForObject(b.object, b.mgr.GetScheme())
	if b.name == "" {
		b.name = strings.ToLower(gvk.Kind)
	}
	return gvk, err
}

func (b *Builder) watchAll(made *built) error {
	for _, w := range b.watches {
		src, err := b.source(made, w)
		if err != nil {
			return err
		}
		made.controller.Watch(src)
	}
	for _, src := range b.raw {
		made.controller.Watch(&rawSource{theirs: src, by: made})
	}
	for _, obj := range b.reads {
		k, err := made.bridge.cache.of(obj)
		if err != nil {
			return err
		}
		made.reads(k)
	}
	return nil
}

func (b *Builder) source(made *built, w watch) (source.Source[types.NamespacedName], error) {
	k, err := b.kindOf(made, w.object, w.option.metadata)
	if err != nil {
		return nil, err
	}
	var h handler.Handler[types.NamespacedName]
	switch {
	case w.owned:
		of, err := b.kindOf(made, b.object, b.watches[0].option.metadata)
		if err != nil {
			return nil, err
		}
		if h = handler.Owner(of); w.option.anyOwner {
			h = handler.AnyOwner(of)
		}
	case w.by != nil:
		h = made.handlerOf(w.by)
	default:
		h = handler.Self()
	}
	var predicates []handler.Predicate
	for _, p := range append(append([]predicate.Predicate(nil), b.filters...), w.option.predicates...) {
		predicates = append(predicates, predicateOf(p))
	}
	made.declared.Store(k, nil)
	return k.source(h, predicates), nil
}

func (b *Builder) kindOf(made *built, obj client.Object, onlyMetadata bool) (kind, error) {
	if !onlyMetadata {
		return made.bridge.cache.of(obj)
	}
	gvk, err := apiutil.GVKForObject(obj, b.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return made.bridge.cache.of(m)
}
