// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers/internalinterfaces"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/builtin"
)

// Option configures New. It has client-go's name, and replaces the default in the cache's Options.
type Option func(*settings)

type settings struct {
	cache *cache.Cache

	namespace     *string // nil: the cache's
	namespaces    *cache.Set[string]
	tweak         internalinterfaces.TweakListOptionsFunc
	labels        labels.Selector // of tweak
	fields        fields.Selector
	transformFunc toolscache.TransformFunc
	transform     *cache.Transform // of transformFunc
	resync        *time.Duration   // nil: the cache's
	resyncs       map[reflect.Type]time.Duration
}

// WithDefaultResync sets how often event handlers without a period of their own get every object
// again, unchanged, like the second argument of client-go's constructor. Default: the cache's
// Resync.
func WithDefaultResync(period time.Duration) Option {
	return func(f *settings) { f.resync = &period }
}

// WithCustomResyncConfig sets the period of WithDefaultResync for some types.
func WithCustomResyncConfig(config map[metav1.Object]time.Duration) Option {
	return func(f *settings) {
		for obj, period := range config {
			f.resyncs[reflect.TypeOf(obj)] = period
		}
	}
}

// WithNamespace limits the informers of namespaced kinds to a namespace. "" is all namespaces.
// Default: the cache's Namespaces, which must be one or all.
func WithNamespace(namespace string) Option {
	set := cache.NewSet(namespace)
	return func(f *settings) { f.namespace, f.namespaces = &namespace, set }
}

// WithTweakListOptions selects the objects of all informers by labels and fields. New calls tweak
// with empty options. If it sets anything else, or an invalid selector, that is an error of the
// cache's Validate.
func WithTweakListOptions(tweak internalinterfaces.TweakListOptionsFunc) Option {
	return func(f *settings) { f.tweak = tweak }
}

// WithTransform changes the objects of all informers before the cache keeps them, without
// managedFields. A factory with a transform shares no informers with handles of cache.For. The
// transform must return an object of the same type. Otherwise, or after an error, the object stays
// as the transform left it, and the informer's state reports the error.
func WithTransform(transform toolscache.TransformFunc) Option {
	return func(f *settings) {
		f.transformFunc, f.transform = transform, nil
		if transform != nil {
			f.transform = cache.NewTransform("of the factory", func(o cache.Object) { inPlace(transform, o) })
		}
	}
}

// inPlace copies the result of a transform into its argument. cache.Transform reports a panic.
func inPlace(transform toolscache.TransformFunc, o cache.Object) {
	result, err := transform(o)
	switch to, from := reflect.ValueOf(o), reflect.ValueOf(result); {
	case err != nil:
		panic(err)
	case !from.IsValid() || from.Type() != to.Type():
		panic(fmt.Errorf("it returned %T instead of %T", result, o))
	case from.IsNil():
		panic(fmt.Errorf("it returned no %T", o))
	case from.Pointer() != to.Pointer():
		to.Elem().Set(from.Elem())
	}
}

func (f *settings) resyncOf(t reflect.Type) time.Duration {
	if period, ok := f.resyncs[t]; ok {
		return period
	}
	if f.resync != nil {
		return *f.resync
	}
	return f.cache.Options().Resync
}

// namespaceOf returns the namespace of a kind's informer, or "" for all. An empty kind is some
// namespaced one.
func (f *settings) namespaceOf(kind schema.GroupKind) (string, error) {
	set := f.cache.Options().Namespaces
	switch {
	case builtin.ClusterScoped(kind):
		return metav1.NamespaceAll, nil
	case f.namespace != nil:
		return *f.namespace, nil
	case set == nil:
		return metav1.NamespaceAll, nil
	}
	names := set.Elements()
	for _, name := range names {
		if name == metav1.NamespaceAll || len(names) == 1 {
			return name, nil
		}
	}
	return "", fmt.Errorf("an informer has one namespace or all, but the cache has %d; use cache.For, or a factory of one namespace with factory.WithNamespace", len(names))
}

func (f *settings) selectors() (err error) {
	if f.tweak == nil {
		return nil
	}
	var o metav1.ListOptions
	f.tweak(&o)
	if o.LabelSelector != "" {
		if f.labels, err = labels.Parse(o.LabelSelector); err != nil {
			return fmt.Errorf("factory.WithTweakListOptions: the LabelSelector %q is invalid: %w", o.LabelSelector, err)
		}
	}
	if o.FieldSelector != "" {
		if f.fields, err = fields.ParseSelector(o.FieldSelector); err != nil {
			return fmt.Errorf("factory.WithTweakListOptions: the FieldSelector %q is invalid: %w", o.FieldSelector, err)
		}
	}
	o.LabelSelector, o.FieldSelector = "", ""
	var set []string
	for n, v := 0, reflect.ValueOf(o); n < v.NumField(); n++ {
		if !v.Field(n).IsZero() {
			set = append(set, v.Type().Field(n).Name)
		}
	}
	if len(set) > 0 {
		return fmt.Errorf("factory.WithTweakListOptions sets %s, which the cache decides; set only LabelSelector and FieldSelector", strings.Join(set, ", "))
	}
	return nil
}

// clientTweak is for informers that use the client, with the cache's labels.
func (f *settings) clientTweak() internalinterfaces.TweakListOptionsFunc {
	byDefault := f.cache.Options().Labels
	if byDefault == nil {
		return f.tweak
	}
	selector := byDefault.String()
	// As a string, labels.Nothing would select everything.
	if _, selectable := byDefault.Requirements(); !selectable {
		selector = "nothing,!nothing"
	}
	return func(o *metav1.ListOptions) {
		o.LabelSelector = selector
		if f.tweak != nil {
			f.tweak(o)
		}
	}
}

func (f *settings) clientTransform() toolscache.TransformFunc {
	if byDefault := f.cache.Options().Transform; f.transformFunc == nil && byDefault != nil {
		return byDefault.Func()
	}
	return f.transformFunc
}

type resynced struct {
	toolscache.SharedIndexInformer

	period time.Duration
}

func (r resynced) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return r.AddEventHandlerWithResyncPeriod(h, r.period)
}

func (r resynced) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	if options.ResyncPeriod == nil {
		options.ResyncPeriod = &r.period
	}
	return r.SharedIndexInformer.AddEventHandlerWithOptions(h, options)
}
