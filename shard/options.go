// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/shard/internal/slots"
	"github.com/setpoint-dev/setpoint/term"
)

// Options configures New. Election.Lease is required, outside a pod also Election.Namespace.
type Options struct {
	// Election has the Lease of the group, and this member's Identity, durations and Hook. Each
	// member holds a Lease of its own, too, which gets the Labels. Annotator must be nil.
	Election leaderelection.Options
	// Partitioner maps keys to slots. All members must use the same one. Default: ByKey.
	Partitioner Partitioner
	// Weight is this member's part of the slots, in relation to other members: 1 to 1000.
	// Default: 1.
	Weight int
	// Settle is how long the others wait before they give slots of theirs to a new member. A
	// member that leaves meanwhile, as in a rolling update, gives its slots to the new one, so each
	// slot moves once. Slots without an owner do not wait. Default: the LeaseDuration.
	Settle time.Duration
	// SlotCache holds only the objects of this member's slots, for caches that need less memory: a
	// *cache.Slots, made with the Partitioner, that the scopes of handles name. A manager makes
	// one: see its method Slots. Default: none, every member keeps all objects.
	SlotCache term.SlotCache
	// Hook gets the group's events. Default: none.
	Hook *hook.Hook
}

func (o Options) withDefaults() Options {
	o.Weight = cmp.Or(o.Weight, 1)
	o.Settle = cmp.Or(o.Settle, o.leaseDuration())
	return o
}

func (o *Options) leaseDuration() time.Duration {
	return cmp.Or(o.Election.LeaseDuration, defaultLease)
}

// As in package leaderelection.
const (
	defaultLease = 15 * time.Second
	defaultGrace = 20 * time.Second
)

// Validate applies the defaults and returns an error that names each wrong field.
func (o Options) Validate() error {
	wrong := []error{o.Election.Validate()}
	// The name of the Lease is a label of all Leases of the group.
	if name := o.Election.Lease; len(name) > validation.LabelValueMaxLength {
		wrong = append(wrong, fmt.Errorf("leaderelection.Options.Lease: %q has %d characters; a shard group needs at most %d",
			name, len(name), validation.LabelValueMaxLength))
	}
	o = o.withDefaults()
	if o.Weight < 1 || o.Weight > slots.MaxWeight {
		wrong = append(wrong, fmt.Errorf("shard.Options.Weight: %d; set 1 to %d", o.Weight, slots.MaxWeight))
	}
	if o.Settle < 0 {
		wrong = append(wrong, fmt.Errorf("shard.Options.Settle: %s, must not be negative", o.Settle))
	}
	if o.Partitioner.calls != nil && o.Partitioner.text == nil {
		wrong = append(wrong, fmt.Errorf("shard.Options.Partitioner: the function of %q is nil; pass one to ByFunc", o.Partitioner))
	}
	if o.Election.Annotator != nil {
		wrong = append(wrong, errors.New("shard.Options.Election.Annotator: must be nil; the group annotates its Leases itself"))
	}
	return errors.Join(wrong...)
}

// Elector implements manager.Coordinator: all replicas are members of a group.
func (o Options) Elector(h term.Host) (term.Elector, error) {
	e := &o.Election
	cfg, err := h.Config(e.Config)
	if err != nil {
		return nil, fmt.Errorf("the Lease %q: leaderelection.Options.Config: %w", e.Lease, err)
	}
	if e.Config != nil {
		e.Config = cfg // errors name its API server
	}
	if len(validation.IsValidLabelValue(h.Name())) == 0 {
		labels := map[string]string{ProgramLabel: h.Name()}
		maps.Copy(labels, e.Labels)
		e.Labels = labels
	}
	e.Identity = cmp.Or(e.Identity, h.Identity())
	e.Hook = h.Hook(hook.Join(e.Hook, o.Hook))
	o.Hook = e.Hook
	g, err := New(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("the Lease %q: %w", e.Lease, err)
	}
	if o.SlotCache == nil {
		g.process.o.SlotCache = h.SlotCache(g)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("the Lease %q: %w", e.Lease, err)
	}
	g.process.events = events.New(c, events.Options{Name: h.Name(), Instance: g.process.identity, Hook: o.Hook})
	h.AddRecorder(g.process.events)
	return g, nil
}
