// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"encoding/json"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/term"
)

// Coordinator decides how the replicas of a program share its work. With *leaderelection.Options,
// one replica at a time leads. With *shard.Options, all replicas work, each on its part of the
// keys.
type Coordinator interface {
	// Validate returns an error that names each wrong field.
	Validate() error
	// Elector makes this process's Elector. New and Manager.AddLease call it once, after Validate.
	// It must not make requests.
	Elector(of term.Host) (term.Elector, error)
}

// Group is an Elector whose replicas all work, each on its part of the keys. *shard.Group is one.
type Group interface {
	term.Elector
	term.Partition
	// Ready is the check shards-NAME of /readyz. It returns an error until this process has joined
	// the group, or waits for others that must end first. After that, remark is what a person
	// should know, or "".
	Ready() (remark string, err error)
	// MarshalJSON returns the state of the group for package debug.
	json.Marshaler
}

// host is the manager as the Host of one Lease's Elector.
type host struct {
	manager   *Manager
	clients   []*client.Client // of a Lease elsewhere
	hook      *hook.Hook       // for this Lease, without the one of the Elector's options
	reports   *hook.Hook       // what the Elector reports to
	slotCache *cache.Slots     // nil without a Partition
}

// Name implements term.Host.
func (h *host) Name() string { return h.manager.o.Name }

// Identity implements term.Host.
func (h *host) Identity() string { return h.manager.Identity() }

// Config implements term.Host.
func (h *host) Config(of *rest.Config) (*rest.Config, error) {
	if of == nil {
		return h.manager.client.Config(), nil
	}
	c, err := h.manager.newClient(of)
	if err != nil {
		return nil, err
	}
	h.clients = append(h.clients, c)
	return c.Config(), nil
}

// Hook implements term.Host.
func (h *host) Hook(own *hook.Hook) *hook.Hook {
	h.reports = hook.Join(h.hook, own)
	return h.reports
}

// SlotCache implements term.Host.
func (h *host) SlotCache(of term.Partition) term.SlotCache {
	h.slotCache = cache.NewSlots(of)
	return h.slotCache
}

// AddRecorder implements term.Host.
func (h *host) AddRecorder(r term.Recorder) { h.manager.AddRecorder(r) }

func validateCoordinator(field string, c Coordinator) error {
	if argument.IsNil(c) {
		return fmt.Errorf("%s: it is nil; use leaderelection.Options or shard.Options", field)
	}
	return c.Validate()
}
