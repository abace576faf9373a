// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
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

const (
	// MostStacks limits the result of Stacks, in bytes.
	MostStacks = 64 << 20
	mostStack  = 16 << 10
)

// Stacks returns the stacks of all goroutines, separated by empty lines.
func Stacks() string {
	for size := 256 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= MostStacks {
			return string(buf[:n])
		}
	}
}

// Shorten truncates a stack for a report about one goroutine.
func Shorten(stack string) string {
	if len(stack) > mostStack {
		return stack[:mostStack] + "\n...more was left out"
	}
	return stack
}

// Labelled returns the stacks of all goroutines with a pprof label, which new goroutines inherit,
// that contain the name of a function.
func Labelled(key, value, function string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	wanted := fmt.Sprintf("%q:%q", key, value) // the format of labels in a profile
	var found []string
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, wanted) && strings.Contains(block, function) {
			found = append(found, block)
		}
	}
	return strings.Join(found, "\n\n")
}
