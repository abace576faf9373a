// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/setpoint-dev/setpoint/hook"
)

// Options configures New. The zero value works.
//
// Namespaces, Labels, Transform, Storage and Resync are defaults for all handles of For and
// ForScope, and for package cache/factory. A handle's [Scope] replaces them. Adopt has no defaults:
// the informer's constructor decides what it keeps.
type Options struct {
	// Namespaces limits all namespaced kinds, as [Scope].Namespaces does. A handle with NewSet("")
	// still keeps all namespaces, and one with Names only these. A set that is empty when Run
	// begins is an error of Validate and Run. ParseNamespaces makes a set from a list. Default: all
	// namespaces.
	Namespaces *Set[string]
	// Labels selects objects by labels, at the API server. A handle with labels.Everything() still
	// keeps all. Default: all objects.
	Labels labels.Selector
	// Transform changes objects before the cache keeps them, if it is for their type;
	// NewTransform[Object] is for all types. A handle's Transform replaces it. Default: none.
	Transform *Transform
	// Storage is how the cache stores objects. Default: it depends on the kind, see DefaultStorage.
	Storage Storage
	// Resync is how often each source of a handle delivers every object again. A handle with
	// NoResync has none. It must not be negative. Default 0: never.
	Resync time.Duration
	// QuietLimit is how long a watch may send neither an event nor a bookmark before its informer
	// compares itself with the API server, which takes one small LIST. API servers with bookmarks
	// send one about every minute, so set it shorter only in tests: the other bounds of a restored
	// API server shrink with it, see the package docs. It must not be negative. Default: 3 minutes.
	QuietLimit time.Duration
	// Hook gets the events of informers. Default: none.
	Hook *hook.Hook
	// Cluster is the name of the API server's cluster, for a program with several caches. States,
	// errors and source names contain it. Default: none.
	Cluster string
}

// ParseNamespaces returns the namespaces of a comma-separated list, for [Options].Namespaces. It
// ignores spaces around a name, and a comma at the end. It returns nil for an empty list, which
// means all namespaces. The list usually comes from an environment variable:
//
//	cache.Options{Namespaces: cache.ParseNamespaces(os.Getenv("WATCH_NAMESPACE"))}
func ParseNamespaces(list string) *Set[string] {
	if list == "" {
		return nil
	}
	set := NewSet[string]()
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			set.Add(name)
		}
	}
	return set
}

// Validate returns an error that names each wrong field.
func (o Options) Validate() error {
	var wrong []error
	if o.Namespaces != nil {
		elements := o.Namespaces.Elements()
		if len(elements) == 0 {
			wrong = append(wrong, errors.New(`cache.Options.Namespaces is empty, so nothing would be read; add a namespace, or "" for all namespaces`))
		}
		for _, namespace := range elements {
			if bad := badNamespace(namespace); bad != "" {
				wrong = append(wrong, fmt.Errorf("cache.Options.Namespaces has %q, which is not a namespace: %s", namespace, bad))
			}
		}
	}
	if o.Transform != nil && o.Transform.nothing {
		wrong = append(wrong, fmt.Errorf("cache.Options.Transform: the transform %q has no function", o.Transform.name))
	}
	wrong = append(wrong, o.Storage.validate("cache.Options.Storage"))
	if o.Resync < 0 {
		wrong = append(wrong, fmt.Errorf("cache.Options.Resync is %s, it must not be negative", o.Resync))
	}
	if o.QuietLimit < 0 {
		wrong = append(wrong, fmt.Errorf("cache.Options.QuietLimit is %s, it must not be negative", o.QuietLimit))
	}
	return errors.Join(wrong...)
}

// complete returns a handle's scope with the defaults. usual is the kind's default of Storage.
func (o Options) complete(s Scope, example Object, usual Storage) Scope {
	if s.Namespaces == nil && s.Names == nil && o.Namespaces != nil {
		s.Namespaces, s.inherited = o.Namespaces, true
	}
	s.Labels = cmp.Or(s.Labels, o.Labels)
	if s.Transform == nil && o.Transform != nil && o.Transform.check(example) == nil {
		s.Transform = o.Transform
	}
	if o.Storage != DefaultStorage {
		usual = o.Storage
	}
	if s.Storage == DefaultStorage {
		s.Storage = usual
	}
	s.ownStorage = s.Storage != usual
	switch s.Resync {
	case 0:
		s.Resync = o.Resync
	case NoResync:
		s.Resync = 0
	}
	return s
}
