// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/slots"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// Options configures New. The zero value is useful.
type Options struct {
	// By maps keys to slots. All members must use the same one. Default: ByKey.
	By By
	// Weight is this member's part of the slots, in relation to other members: 1 to 1000.
	// Default: 1.
	Weight int
	// Settle is how long the others wait before they give slots of theirs to a new member. A
	// member that leaves meanwhile, as in a rolling update, gives its slots to the new one, so each
	// slot moves once. Slots without an owner do not wait. Default: the LeaseDuration.
	Settle time.Duration
	// Keeper holds only the objects of this member's slots, for caches that need less memory: a
	// *cache.Slots, made with By.Slot, that the scopes of handles name. A manager makes one: see
	// its method Slots. Default: none, every member keeps all objects.
	Keeper Keeper
	// Hooks observe the group. Default: none.
	Hooks *hook.Shards
}

// Keeper holds the objects of this member's slots, and no others. *cache.Slots is one. All methods
// must be safe for concurrent use.
type Keeper interface {
	// Add begins to keep the objects of more slots.
	Add(slots ...uint8)
	// Remove drops the objects of slots.
	Remove(slots ...uint8)
	// WaitForSync returns nil when the objects of the slots are there, or an error if ctx ends
	// before.
	WaitForSync(ctx context.Context, slots ...uint8) error
}

func (o Options) withDefaults(election leaderelection.Options) Options {
	o.Weight = cmp.Or(o.Weight, 1)
	o.Settle = cmp.Or(o.Settle, leaseDuration(election))
	if o.Hooks == nil {
		o.Hooks = &hook.Shards{}
	}
	return o
}

func leaseDuration(election leaderelection.Options) time.Duration {
	return cmp.Or(election.LeaseDuration, defaultLease)
}

// As in package leaderelection.
const (
	defaultLease = 15 * time.Second
	defaultGrace = 20 * time.Second
)

// Validate applies the defaults and returns an error that names each wrong field.
func (o Options) Validate() error {
	o = o.withDefaults(leaderelection.Options{})
	var wrong []error
	if o.Weight < 1 || o.Weight > slots.MaxWeight {
		wrong = append(wrong, fmt.Errorf("shard.Options.Weight: %d; set 1 to %d", o.Weight, slots.MaxWeight))
	}
	if o.Settle < 0 {
		wrong = append(wrong, fmt.Errorf("shard.Options.Settle: %s, must not be negative", o.Settle))
	}
	if o.By.calls != nil && o.By.text == nil {
		wrong = append(wrong, fmt.Errorf("shard.Options.By: the function of %q is nil; pass one to ByFunc", o.By))
	}
	return errors.Join(wrong...)
}

// checkLease limits the name of the Lease, which is a label of all Leases of the group.
func checkLease(name string) error {
	if len(name) > validation.LabelValueMaxLength {
		return fmt.Errorf("leaderelection.Options.Lease: %q has %d characters; a shard group needs at most %d", name, len(name), validation.LabelValueMaxLength)
	}
	return nil
}
