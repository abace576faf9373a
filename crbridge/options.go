// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	theircache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/setpoint-dev/setpoint/cache"
)

// cacheOptions maps the options that hold for all kinds.
func cacheOptions(o theircache.Options) (cache.Options, error) {
	own := cache.Options{Labels: o.DefaultLabelSelector}
	if o.SyncPeriod != nil {
		own.Resync = *o.SyncPeriod
	}
	if o.DefaultTransform != nil {
		own.Transform = transformOf("ctrl.Options.Cache.DefaultTransform", o.DefaultTransform)
	}
	var wrong []error
	if o.NewInformer != nil {
		wrong = append(wrong, errors.New("crbridge: ctrl.Options.Cache.NewInformer has no counterpart; remove it, the informers are Setpoint's"))
	}
	namespaces, config, err := namespacesOf("ctrl.Options.Cache.DefaultNamespaces", o.DefaultNamespaces)
	if own.Namespaces = namespaces; limited(config) { // it must not hold for cluster-scoped kinds
		wrong = append(wrong, errors.New("crbridge: ctrl.Options.Cache.DefaultNamespaces has options for its namespaces, which have no counterpart; set them in ByObject"))
	}
	for obj, by := range o.ByObject {
		_, err := scopeOf(fmt.Sprintf("ctrl.Options.Cache.ByObject of %T", obj), by)
		wrong = append(wrong, err)
	}
	return own, errors.Join(append(wrong, err)...)
}

// scopeOf maps the options of one kind. The ones of its namespaces come first.
func scopeOf(who string, o theircache.ByObject) (cache.Scope, error) {
	namespaces, config, err := namespacesOf(who, o.Namespaces)
	s := cache.Scope{Namespaces: namespaces, Labels: o.Label, Fields: o.Field}
	if config.LabelSelector != nil {
		s.Labels = config.LabelSelector
	}
	if config.FieldSelector != nil {
		s.Fields = config.FieldSelector
	}
	if f := config.Transform; f != nil {
		s.Transform = transformOf(who, f)
	} else if o.Transform != nil {
		s.Transform = transformOf(who, o.Transform)
	}
	if period := cmp.Or(config.SyncPeriod, o.SyncPeriod); period != nil {
		s.Resync = *period
	}
	return s, err
}

// limited reports whether the options of a namespace limit or change its objects.
func limited(c theircache.Config) bool {
	return c.LabelSelector != nil || c.FieldSelector != nil || c.Transform != nil || c.SyncPeriod != nil
}

// namespacesOf returns nil for all namespaces, and the options that all of them have.
func namespacesOf(who string, all map[string]theircache.Config) (set *cache.Set[string], config theircache.Config, err error) {
	if len(all) == 0 {
		return nil, config, nil
	}
	first := true
	set = cache.NewSet[string]()
	for namespace, c := range all {
		if !first && (limited(c) || limited(config)) && !reflect.DeepEqual(c, config) {
			return nil, config, fmt.Errorf("crbridge: %s has other options for the namespace %q than for another one, which has no counterpart; set them for the kind", who, namespace)
		}
		config, first = c, false
		set.Add(namespace)
	}
	return set, config, nil
}

// transformOf adapts a transform, which may return another object of the same type.
func transformOf(name string, f toolscache.TransformFunc) *cache.Transform {
	return cache.NewTransform(name, func(o cache.Object) {
		changed, err := f(o)
		if err != nil {
			panic(err) // the informer's state reports it, and the object stays
		}
		if reflect.TypeOf(changed) == reflect.TypeOf(o) && changed != any(o) {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(changed).Elem())
		}
	})
}

// remark logs what happens instead of an option without a counterpart.
func remark(l logr.Logger, set bool, option, instead string) {
	if set {
		l.Info("an option has no counterpart", "option", option, "instead", instead)
	}
}

// remarks logs what happens instead of the manager's options without a counterpart.
func remarks(o Options) {
	say := func(set bool, option, instead string) { remark(o.Logger, set, option, instead) }
	const copies, bookmarks = "reads return copies; pass client.UnsafeDisableDeepCopy to a List", "watches have bookmarks"
	c := o.Cache
	say(c.DefaultWatchErrorHandler != nil, "Cache.DefaultWatchErrorHandler", "the log, the metrics and /readyz report failing informers")
	say(c.DefaultUnsafeDisableDeepCopy != nil, "Cache.DefaultUnsafeDisableDeepCopy", copies)
	say(c.DefaultEnableWatchBookmarks != nil, "Cache.DefaultEnableWatchBookmarks", bookmarks)
	for obj, by := range c.ByObject {
		say(by.UnsafeDisableDeepCopy != nil, fmt.Sprintf("Cache.ByObject[%T].UnsafeDisableDeepCopy", obj), copies)
		say(by.EnableWatchBookmarks != nil, fmt.Sprintf("Cache.ByObject[%T].EnableWatchBookmarks", obj), bookmarks)
	}
	say(off(o.Controller.RecoverPanic), "Controller.RecoverPanic", "controllers of level b turn a panic into an error")
	say(off(o.Controller.EnableWarmup), "Controller.EnableWarmup", "the sources of level b run on every replica")
	say(off(o.Controller.UsePriorityQueue), "Controller.UsePriorityQueue", "the queue of level b has three classes")
	say(o.Controller.CacheSyncTimeout != 0, "Controller.CacheSyncTimeout", "controllers of level b start without a kind that does not sync")
}

// probes returns an error for other paths: the Pod would restart if nothing answers there.
func probes(o Options) error {
	var wrong []error
	if name := o.ReadinessEndpointName; name != "" && name != "/readyz" {
		wrong = append(wrong, fmt.Errorf("crbridge: ctrl.Options.ReadinessEndpointName is %q, which has no counterpart; remove it, and probe /readyz", name))
	}
	if name := o.LivenessEndpointName; name != "" && name != "/healthz" && name != "/livez" {
		wrong = append(wrong, fmt.Errorf("crbridge: ctrl.Options.LivenessEndpointName is %q, which has no counterpart; remove it, and probe /healthz", name))
	}
	return errors.Join(wrong...)
}
