// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shardtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/controller"
)

// Recorder records which members reconcile which keys. The zero value is ready. It is safe for
// concurrent use.
type Recorder[K comparable] struct {
	mu       sync.Mutex                    // guards what follows
	running  map[K]map[string]func() error // by member: the Err of the context
	members  map[K]map[string]bool         // since Reset
	overlaps []error
}

// Reconciler returns a Reconciler that calls r and records that the member reconciles the key. Give
// each replica another name.
func (r *Recorder[K]) Reconciler(member string, of controller.Reconciler[K]) controller.Reconciler[K] {
	return controller.Func[K](func(ctx context.Context, key K) (controller.Result, error) {
		r.begin(member, key, ctx.Err)
		defer r.end(member, key)
		return of.Reconcile(ctx, key)
	})
}

func (r *Recorder[K]) begin(member string, key K, ended func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running, r.members = map[K]map[string]func() error{}, map[K]map[string]bool{}
	}
	for other, ended := range r.running[key] {
		if ended() == nil {
			r.overlaps = append(r.overlaps, fmt.Errorf("%s and %s reconcile %v at the same time", other, member, key))
		}
	}
	if r.running[key] == nil {
		r.running[key] = map[string]func() error{}
	}
	if r.members[key] == nil {
		r.members[key] = map[string]bool{}
	}
	r.running[key][member], r.members[key][member] = ended, true
}

func (r *Recorder[K]) end(member string, key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running[key], member)
}

// Reset forgets which members have reconciled the keys. It keeps those that did at the same time.
func (r *Recorder[K]) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.members)
}

// Check returns an error if two members have ever reconciled a key at the same time. A Reconcile
// whose context has ended does not count: the fence refuses its writes. Check also returns an error
// for each of the keys that no member has reconciled since Reset, or several have.
func (r *Recorder[K]) Check(keys ...K) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := slices.Clone(r.overlaps)
	for _, key := range keys {
		switch members := slices.Sorted(maps.Keys(r.members[key])); len(members) {
		case 0:
			wrong = append(wrong, fmt.Errorf("no member reconciles %v", key))
		case 1:
		default:
			wrong = append(wrong, fmt.Errorf("%s reconcile %v", strings.Join(members, " and "), key))
		}
	}
	return errors.Join(wrong...)
}
