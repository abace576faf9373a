// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/fieldmanager"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// Controllers do at once what the controllers of a real cluster do later: they collect garbage,
// empty namespaces and serve CustomResourceDefinitions.
type Controllers struct {
	store       *store.Store
	managers    *fieldmanager.Managers
	graph       *graph
	terminating map[string]bool           // being deleted; true: it changed
	crdsChanged bool                      // CustomResourceDefinitions have to be settled
	crdStores   map[string]*store.Storage // by name
}

// NewControllers returns the controllers of a store.
func NewControllers(s *store.Store, m *fieldmanager.Managers) *Controllers {
	return &Controllers{store: s, managers: m, graph: newGraph(), terminating: map[string]bool{}}
}

// Serve adds a resource that is not served yet. New namespaces contain the system's.
func (c *Controllers) Serve(d kinds.Definition, with *store.Storage) {
	known := c.store.Tables[d.GVR()] != nil
	if t := c.store.Serve(d, with); t.IsNamespaces() && !known {
		for _, name := range systemNamespaces {
			c.EnsureNamespace(name)
		}
	}
}

// observe takes note of the writes since the last call.
func (c *Controllers) observe() {
	for _, w := range c.store.TakeChanges() {
		c.crdsChanged = c.crdsChanged || w.Table.Prepare != nil
		c.graph.observe(w.Table, w.Kind, w.Before, w.After)
		c.noteNamespace(w.Table, w.Kind, w.After)
	}
}

// Recheck looks at all namespaces that are being deleted again after the next write.
func (c *Controllers) Recheck() {
	for name := range c.terminating {
		c.terminating[name] = true
	}
}

// Settle does in one step what the controllers of a real cluster do after a write: it serves
// CustomResourceDefinitions, collects garbage and empties namespaces.
func (c *Controllers) Settle() {
	for {
		c.SettleCRDs()
		c.collect()
		version := c.store.Version
		for _, name := range slices.Sorted(maps.Keys(c.terminating)) {
			if c.terminating[name] {
				c.terminating[name] = false
				c.drain(name)
				c.observe()
			}
		}
		if c.store.Version == version {
			return
		}
	}
}

// Restart makes the controllers see all objects of a restored store as new ones.
func (c *Controllers) Restart() {
	c.graph = newGraph()
	clear(c.terminating)
	c.crdsChanged = true
	c.Settle()
}

// controllerManager is the field manager of the garbage collector and the namespace controller.
const controllerManager = "kube-controller-manager"

// control makes u the new state of live as a controller of kube-controller-manager. It skips
// validation, because Server.Put does.
func (c *Controllers) control(t *store.Table, live, u *unstructured.Unstructured, subresource string) {
	r := &request.Request{Verb: "update", Resource: t.GVR(), Namespace: u.GetNamespace(), Name: u.GetName(), Subresource: subresource, Manager: controllerManager}
	if err := c.managers.Manage(r, t, live, u); err != nil {
		return // only for an object that the field managers cannot read
	}
	if rules.Removable(live, u) {
		c.store.Remove(t, u)
		return
	}
	c.store.Record(t, watch.Modified, live, u)
}
