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
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/consistency"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/source"
)

// Readable is something that a Reconcile reads, such as a *cache.Handle.
type Readable interface {
	// WaitForSync returns nil when reads are possible, or an error if ctx ends before.
	WaitForSync(ctx context.Context) error
	// Settled waits until the Readable is synced, or Stale names the problem that prevents this. If
	// ctx ends first, it returns an error.
	Settled(ctx context.Context) error
	// Stale returns nil while reads follow the API server, else why they may be old.
	Stale() error
	// String returns the name for logs and errors.
	String() string
}

type inputs[K comparable] struct {
	name      string
	informers consistency.Declarations

	mu       sync.Mutex      // guards what follows
	wrong    []error         // mistakes for Validate
	list     []*input[K]     // replaced, never changed
	optional []any           // handles and sources
	start    func(*input[K]) // while Warm runs
	news     run.Barrier     // an input is settled, has ended, or was removed

	altered atomic.Bool // while they were in use
}

type input[K comparable] struct {
	Readable // or the Status of the source, with its name

	settled chan struct{}      // workers need not wait for it
	stop    context.CancelFunc // guarded by inputs.mu

	source  source.Source[K] // nil for a Readable, as are the fields below
	removed chan struct{}    // closed by Unwatch
	ended   chan struct{}    // the source has returned, with err
	err     error
}

// watched is a source's status with its name.
type watched struct {
	*source.Status
	fmt.Stringer
}

func (w watched) state() source.State {
	s := w.State()
	s.Source = w.String()
	return s
}

// what returns the source or the Readable, which may have optional methods.
func (i *input[K]) what() any {
	if i.source != nil {
		return i.source
	}
	return i.Readable
}

// replaying is an optional interface of a source.
type replaying interface {
	Replay(ctx context.Context) error
}

func (in *inputs[K]) complain(what string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wrong = append(in.wrong, errors.New(what))
}

func (in *inputs[K]) validate() error {
	in.mu.Lock()
	wrong := slices.Clone(in.wrong)
	in.mu.Unlock()
	for _, i := range in.all() {
		if i.source != nil {
			wrong = append(wrong, named(i, validate(i.source)))
		}
	}
	for _, r := range in.unusedOptional() {
		wrong = append(wrong, fmt.Errorf("Optional: the controller neither watches nor reads %v; call Watch or Reads, too", r))
	}
	return errors.Join(wrong...)
}

// isOptional reports whether Optional got the input or its handle.
func (in *inputs[K]) isOptional(i *input[K]) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.ContainsFunc(in.optional, i.is)
}

func (in *inputs[K]) unusedOptional() (unused []any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range in.optional {
		if !slices.ContainsFunc(in.list, func(i *input[K]) bool { return i.is(r) }) {
			unused = append(unused, r)
		}
	}
	return unused
}

// is reports whether r is the input, or the handle that it watches.
func (i *input[K]) is(r any) bool {
	return reflect.TypeOf(r).Comparable() && (i.what() == r || any(i.handle()) == r)
}

func (in *inputs[K]) watch(s source.Source[K]) {
	in.add(&input[K]{Readable: watched{s.Status(), s}, source: s, removed: make(chan struct{}), ended: make(chan struct{})})
}

func (in *inputs[K]) read(what ...Readable) {
	for _, r := range what {
		in.add(&input[K]{Readable: r})
	}
}

func (in *inputs[K]) exempt(what ...fmt.Stringer) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, r := range what {
		in.optional = append(in.optional, r)
	}
}

func (in *inputs[K]) add(i *input[K]) {
	i.settled = make(chan struct{})
	in.mu.Lock()
	defer in.mu.Unlock()
	in.list = append(slices.Clip(in.list), i)
	in.updateInformersLocked()
	if in.start != nil {
		in.altered.Store(true)
		in.start(i)
	}
}

func (in *inputs[K]) unwatch(s source.Source[K]) (was *input[K], running bool) {
	if s == nil || !reflect.TypeOf(s).Comparable() {
		return nil, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.IndexFunc(in.list, func(i *input[K]) bool { return i.source == s })
	if i < 0 {
		return nil, false
	}
	was = in.list[i]
	in.altered.Store(true)
	in.list = slices.Delete(slices.Clone(in.list), i, i+1)
	in.updateInformersLocked()
	close(was.removed)
	in.news.Open()
	return was, was.stop != nil
}

func (in *inputs[K]) updateInformersLocked() {
	var of []any
	for _, i := range in.list {
		if h := i.handle(); h != nil {
			of = append(of, h)
		}
	}
	in.informers.Declare(fmt.Sprintf("the controller %q", in.name), of...)
}

// handle returns nil if the input has none.
func (i *input[K]) handle() cache.Declared {
	switch r := i.what().(type) {
	case interface{ Handle() cache.Declared }:
		return r.Handle()
	case cache.Declared:
		return r
	}
	return nil
}

func (in *inputs[K]) all() []*input[K] {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.list
}

// run calls start for each input, now or when it is added, until end is called.
func (in *inputs[K]) run(start func(*input[K])) (end func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.start = start
	for _, i := range in.list {
		start(i)
	}
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.start = nil
	}
}

func (in *inputs[K]) awaitSettled(ctx context.Context) bool {
	for i := in.unsettled(); i != nil; i = in.unsettled() {
		select {
		case <-i.settled:
		case <-i.ended:
		case <-i.removed:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

func (in *inputs[K]) unsettled() *input[K] {
	for _, i := range in.all() {
		if !i.isSettled() {
			return i
		}
	}
	return nil
}

func (in *inputs[K]) stale() error {
	var all []error
	for _, i := range in.all() {
		all = append(all, named(i, i.Stale()))
	}
	return errors.Join(all...)
}

func (in *inputs[K]) unsynced() (waits []string) {
	for _, i := range in.all() {
		if i.Stale() != nil || !isSynced(context.Background(), i) {
			_, state := stateOf(i.Readable)
			waits = append(waits, state)
		}
	}
	return waits
}

func (in *inputs[K]) catchUp(ctx context.Context) error {
	return in.each(func(i *input[K]) error { return i.catchUp(ctx) })
}

func (in *inputs[K]) replay(ctx context.Context) error {
	return in.each(func(i *input[K]) error {
		if s, ok := i.source.(replaying); ok {
			return s.Replay(ctx)
		}
		return nil
	})
}

// replay delivers the source's objects again, for the wanted keys if the source can tell.
func (i *input[K]) replay(ctx context.Context, wanted func(K) bool) error {
	switch s := i.source.(type) {
	case interface {
		ReplayKeys(ctx context.Context, wanted func(K) bool) error
	}:
		return s.ReplayKeys(ctx, wanted)
	case replaying:
		return s.Replay(ctx)
	}
	return nil
}

// each calls f for all inputs at once, and ignores errors of removed ones.
func (in *inputs[K]) each(f func(*input[K]) error) error {
	list := in.all()
	wrong := make([]error, len(list))
	var all sync.WaitGroup
	for n, i := range list {
		all.Go(func() {
			if err := f(i); !run.Closed(i.removed) {
				wrong[n] = named(i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(wrong...)
}

func (i *input[K]) catchUp(ctx context.Context) error {
	if s, ok := i.what().(interface {
		CatchUp(ctx context.Context) error
	}); ok {
		return s.CatchUp(ctx)
	}
	return i.Settled(ctx)
}

func validate[K comparable](s source.Source[K]) error {
	if v, ok := s.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

func stateOf(what Readable) (hook.Phase, string) {
	switch s := what.(type) {
	case watched:
		state := s.state()
		return state.Phase, state.String()
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

// isSynced does not wait.
func isSynced(ctx context.Context, r Readable) bool {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return r.WaitForSync(ctx) == nil
}

func named(whose fmt.Stringer, err error) error {
	if err == nil || strings.Contains(err.Error(), whose.String()) {
		return err
	}
	return fmt.Errorf("%s: %w", whose, err)
}
