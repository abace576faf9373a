// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"runtime"
	"strings"
	"sync"
)

// Worker does one piece of work after another on its goroutine.
type Worker interface {
	// Working returns the context of the work in progress, or nil.
	Working() context.Context
}

// Goroutines finds the work that made a call, for calls with a context that is not the work's own.
// The zero value is ready for use. It is safe for concurrent use.
type Goroutines struct{ workers sync.Map } // Worker by the name of its goroutine

type goroutinesKey struct{}

// With returns a context from which GoroutinesOf returns g.
func (g *Goroutines) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, goroutinesKey{}, g)
}

// GoroutinesOf returns the Goroutines of a context, or new ones.
func GoroutinesOf(ctx context.Context) *Goroutines {
	if g, ok := ctx.Value(goroutinesKey{}).(*Goroutines); ok {
		return g
	}
	return &Goroutines{}
}

// Enter registers the calling goroutine for a worker, until leave is called. name is its name in
// stacks, such as "goroutine 17".
func (g *Goroutines) Enter(w Worker) (name string, leave func()) {
	name, _ = goroutine(64)
	g.workers.Store(name, w)
	return name, func() { g.workers.Delete(name) }
}

// Working returns the context of the work that the calling goroutine does, or whose goroutine has
// started the calling one. Otherwise it returns nil. It takes microseconds.
func (g *Goroutines) Working() context.Context {
	name, creator := goroutine(32 << 10) // the creator comes last
	for _, on := range [...]string{name, creator} {
		if w, ok := g.workers.Load(on); ok {
			return w.(Worker).Working() //nolint:forcetypeassert // workers has no other types
		}
	}
	return nil
}

// goroutine returns the names of the calling goroutine and of the one that started it. size limits
// the bytes of the stack to read.
func goroutine(size int) (name, creator string) {
	buf := make([]byte, size)
	stack := string(buf[:runtime.Stack(buf, false)])
	name, _, _ = strings.Cut(stack, " [") // "goroutine 17 [running]:"
	// The stack ends like "created by main.f in goroutine 17" and a line with the place.
	if at := strings.LastIndex(stack, " in goroutine "); at >= 0 {
		creator, _, _ = strings.Cut(stack[at+len(" in "):], "\n")
	}
	return name, creator
}
