// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"errors"
	"fmt"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	lru "k8s.io/apimachinery/pkg/util/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
)

// AppliedAnnotation is on each child that Reconcile has applied. Its value is a hash of the desired
// fields. A child without it is not pruned.
const AppliedAnnotation = "setpoint.dev/applied"

// mostKnown is how many owners' children a Set remembers. It forgets the oldest first.
const mostKnown = 100_000

// Set keeps the children of owners of one kind. It is safe for concurrent use. For one owner, call
// its methods from one goroutine at a time, such as its Reconcile.
type Set[O client.Object] struct {
	owners  *cache.Handle[O]
	client  *client.Client
	kinds   []Kind
	tooling string // or ""
	seed    maphash.Seed
	known   *lru.LRUExpireCache // findings, by UID of the owner
}

// findings are by UID of the child. They are replaced, never changed.
type findings map[types.UID]finding

// finding is a version of a child that is as desired.
type finding struct {
	version string
	print   uint64 // of the desired fields
	ready   bool
	reason  string
}

// New returns a Set with the kinds that the children of owners may have. The error names a kind
// that is given twice, or whose handle is nil. Call [Set.Watch], too.
func New[O client.Object](owners *cache.Handle[O], c *client.Client, kinds ...Kind) (*Set[O], error) {
	if owners == nil || c == nil {
		return nil, errors.New("children.New: the owners' handle or the client is nil; give the handle that the controller reads and manager.Client")
	}
	known := map[schema.GroupKind]bool{}
	for i, k := range kinds {
		if k == nil {
			return nil, fmt.Errorf("children.New: kind %d is nil; children.Of makes one", i+1)
		}
		if err := k.check(); err != nil {
			return nil, fmt.Errorf("children.New: kind %d: %w", i+1, err)
		}
		of := k.GroupVersionKind().GroupKind()
		if known[of] {
			return nil, fmt.Errorf("children.New: the kind %s is given twice; give one handle", of)
		}
		known[of] = true
	}
	return &Set[O]{owners: owners, client: c, kinds: kinds, seed: maphash.MakeSeed(), known: lru.NewLRUExpireCache(mostKnown)}, nil
}

// Watch makes a controller reconcile the owner of each child that appears, changes or goes. It
// calls the controller's Watch for each kind, with handler.Owner. For other keys, such as
// handler.ClusterKey, or with predicates, do that yourself.
func (s *Set[O]) Watch(c *controller.Controller[types.NamespacedName]) {
	for _, k := range s.kinds {
		c.Watch(k.source(s.owners))
	}
}

// kindOf returns the kind of a configuration.
func (s *Set[O]) kindOf(c client.ApplyConfiguration) (Kind, error) {
	gvk := kindName(c)
	t, isTyped := c.(*typed)
	for _, k := range s.kinds {
		of := k.GroupVersionKind()
		switch {
		case gvk == of, gvk.Kind == "" && isTyped && k.is(t.of):
			return k, nil
		case gvk.GroupKind() == of.GroupKind():
			return nil, fmt.Errorf("it is of version %s, and the handle of version %s; use the same", gvk.Version, of.Version)
		}
	}
	switch {
	case gvk.Kind != "":
		return nil, fmt.Errorf("children.New was not given its kind %s; add children.Of with a handle for it", gvk.GroupKind())
	case isTyped:
		return nil, fmt.Errorf("children.New was not given its type %T; add children.Of with a handle for it", t.of)
	}
	return nil, errors.New("it has no kind; set its kind and apiVersion")
}
