// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/source"
)

// Readable is something that a Reconciler reads. A *cache.Handle is one, and so is every source.
type Readable interface {
	// WaitForSync returns nil once it can be read, or an error when ctx ends before.
	WaitForSync(ctx context.Context) error
	// Settled returns nil once it is synced, or is in trouble that Stale names; and an error when ctx ends before.
	Settled(ctx context.Context) error
	// Stale returns nil while what is read follows the API server, otherwise why it may be old.
	Stale() error
	// String names it.
	String() string
}

// inputs are what a controller watches and reads.
type inputs[K comparable] struct {
	name     string // of the controller
	declared cache.Declarations

	mu      sync.Mutex         // guards what follows
	wrong   []error            // what Validate reports
	watches []*watching[K]     // replaced, never changed
	reads   []Readable         // replaced, never changed
	start   func(*watching[K]) // while Warm runs
}

// watching is a source that the controller watches.
type watching[K comparable] struct {
	source  source.Source[K]
	settled chan struct{} // closed when workers need not wait for the source
	removed chan struct{} // closed by Unwatch
	ended   chan struct{} // closed when the source has returned, with err
	err     error
	stop    context.CancelFunc // ends the source; set when it starts, under the mutex of inputs
}

func (in *inputs[K]) complain(what string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wrong = append(in.wrong, errors.New(what))
}

// validate returns what is wrong with the controller, and with its sources.
func (in *inputs[K]) validate() error {
	in.mu.Lock()
	wrong, watches := slices.Clone(in.wrong), in.watches
	in.mu.Unlock()
	for _, w := range watches {
		wrong = append(wrong, named(w.source, w.source.Validate()))
	}
	return errors.Join(wrong...)
}

func (in *inputs[K]) watch(s source.Source[K]) {
	w := &watching[K]{source: s, settled: make(chan struct{}), removed: make(chan struct{}), ended: make(chan struct{})}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.watches = append(slices.Clip(in.watches), w)
	in.declareLocked()
	if in.start != nil {
		in.start(w)
	}
}

// unwatch forgets a source, and reports whether it was started.
func (in *inputs[K]) unwatch(s source.Source[K]) (w *watching[K], running bool) {
	if s == nil || !reflect.TypeOf(s).Comparable() {
		return nil, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.IndexFunc(in.watches, func(w *watching[K]) bool { return w.source == s })
	if i < 0 {
		return nil, false
	}
	w = in.watches[i]
	in.watches = slices.Delete(slices.Clone(in.watches), i, i+1)
	in.declareLocked()
	close(w.removed)
	return w, w.stop != nil
}

func (in *inputs[K]) read(r ...Readable) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.reads = append(slices.Clip(in.reads), r...)
	in.declareLocked()
}

// declareLocked allows Reconcile to read what is watched and what was given to Reads.
func (in *inputs[K]) declareLocked() {
	var of []cache.Declared
	for _, w := range in.watches {
		if k, ok := w.source.(interface{ Handle() cache.Declared }); ok {
			of = append(of, k.Handle())
		}
	}
	for _, r := range in.reads {
		if d, ok := r.(cache.Declared); ok {
			of = append(of, d)
		}
	}
	in.declared.Set(fmt.Sprintf("the controller %q", in.name), of...)
}

func (in *inputs[K]) all() ([]*watching[K], []Readable) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.watches, in.reads
}

// run has start start each source, and those that are watched later, until the function that it
// returns is called.
func (in *inputs[K]) run(start func(*watching[K])) (end func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.start = start
	for _, w := range in.watches {
		start(w)
	}
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.start = nil
	}
}

// unsettled returns a source for which the workers have to wait, if there is one.
func (in *inputs[K]) unsettled() *watching[K] {
	watches, _ := in.all()
	for _, w := range watches {
		if !run.Closed(w.settled) && !run.Closed(w.ended) {
			return w
		}
	}
	return nil
}

// each calls f with all that is watched and read.
func (in *inputs[K]) each(f func(Readable)) {
	watches, reads := in.all()
	for _, w := range watches {
		f(w.source)
	}
	for _, r := range reads {
		f(r)
	}
}

// stale returns why what is watched and read may be old.
func (in *inputs[K]) stale() error {
	var all []error
	in.each(func(r Readable) { all = append(all, named(r, r.Stale())) })
	return errors.Join(all...)
}

// unsynced returns, in words, what is not synced.
func (in *inputs[K]) unsynced() (waits []string) {
	in.each(func(r Readable) {
		if r.Stale() != nil || !isSynced(context.Background(), r) {
			_, state := stateOf(r)
			waits = append(waits, state)
		}
	})
	return waits
}

// catchUp returns nil once everything that the API server had at the call was handled.
func (in *inputs[K]) catchUp(ctx context.Context) error {
	watches, reads := in.all()
	wrong := make([]error, len(watches)+len(reads))
	var all sync.WaitGroup
	for i, w := range watches {
		all.Go(func() {
			if err := catchUp(ctx, w.source); !run.Closed(w.removed) {
				wrong[i] = named(w.source, err)
			}
		})
	}
	for i, r := range reads {
		all.Go(func() { wrong[len(watches)+i] = named(r, catchUp(ctx, r)) })
	}
	all.Wait()
	return errors.Join(wrong...)
}

func catchUp(ctx context.Context, r Readable) error {
	if s, ok := r.(source.CatchingUp); ok {
		return s.CatchUp(ctx)
	}
	return r.Settled(ctx)
}

// stateOf returns where an input stands, and that in words. The phase is empty if only the words are
// known.
func stateOf(what Readable) (hook.Phase, string) {
	switch s := what.(type) {
	case interface{ State() source.State }:
		return s.State().Phase, s.State().String()
	case interface{ State() hook.InformerState }:
		return s.State().Phase, s.State().String()
	}
	if err := what.Stale(); err != nil {
		return "", err.Error()
	}
	if isSynced(context.Background(), what) {
		return "", "synced"
	}
	return "", "not synced"
}

// isSynced asks without waiting.
func isSynced(ctx context.Context, r Readable) bool {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return r.WaitForSync(ctx) == nil
}

// named makes err, if any, say whose it is, if it does not yet.
func named(whose fmt.Stringer, err error) error {
	if err == nil || strings.Contains(err.Error(), whose.String()) {
		return err
	}
	return fmt.Errorf("%s: %w", whose, err)
}
