// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"github.com/setpoint-dev/setpoint/rbac"
)

// Needs returns the rights of the cache's informers: list and watch. Adopted informers are not
// among them.
func (c *Cache) Needs() (all []rbac.Need) {
	for _, i := range c.all() {
		all = append(all, i.needs()...)
	}
	return all
}

// Needs returns the rights of the handle's informers: list and watch.
func (h *Handle[T]) Needs() []rbac.Need { return h.handle.needs() }

func (h *handle) needs() (all []rbac.Need) {
	if h.group == nil {
		return nil
	}
	for _, i := range h.group.members.Load().by {
		all = append(all, i.needs()...)
	}
	return all
}

func (i *informer) needs() []rbac.Need {
	if i.lw == nil {
		return nil
	}
	n := rbac.Need{Kind: i.key.gvk, Rule: rbac.Rule{
		Cluster: i.key.cluster, Namespace: i.key.place.Namespace, Verbs: []string{"list", "watch"}, Why: "the informer of " + i.key.kind(),
	}}
	if i.key.place.Name != "" {
		n.Names = []string{i.key.place.Name}
	}
	return []rbac.Need{n}
}
