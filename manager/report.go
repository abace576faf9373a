// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"
)

// label marks the goroutines of a manager in profiles, with the manager's name and that of the function.
const label = "setpoint"

// report is what one Run has started that has not returned, and what has gone wrong.
type report struct {
	manager string
	end     func() // asks everything to stop

	mu    sync.Mutex                 // guards what follows
	names []string                   // of the functions that run, in the order of their start
	busy  map[string]func() []string // what a function is at, for some of them
	errs  []error
	quiet chan struct{} // if not nil, closed when no function runs any more
}

func (r *report) label(name string) string { return r.manager + "/" + name }

// running takes down that a function runs, until it calls what it gets.
func (r *report) running(name string) (returned func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		i := slices.Index(r.names, name)
		r.names = slices.Delete(r.names, i, i+1)
		if !slices.Contains(r.names, name) {
			delete(r.busy, name) // it keeps the controller
		}
		if len(r.names) == 0 && r.quiet != nil {
			close(r.quiet)
			r.quiet = nil
		}
	}
}

// settle waits until no function runs, or the time is over. Work whose Lease was over is not waited for, but may be about to return.
func (r *report) settle(d time.Duration) {
	r.mu.Lock()
	if len(r.names) == 0 {
		r.mu.Unlock()
		return
	}
	quiet := make(chan struct{})
	r.quiet = quiet
	r.mu.Unlock()
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-quiet:
	case <-over.C:
	}
}

// explain has a function that is about to run, and does not stop, be reported with what it is at.
func (r *report) explain(name string, busy func() []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy == nil {
		r.busy = map[string]func() []string{}
	}
	r.busy[name] = busy
}

// at says in words what a function is at, if that is known.
func (r *report) at(name string) string {
	r.mu.Lock()
	busy := r.busy[name]
	r.mu.Unlock()
	if busy == nil {
		return ""
	}
	if keys := busy(); len(keys) > 0 {
		return " (it reconciles " + strings.Join(keys, ", ") + ")"
	}
	return ""
}

// failed takes an error down, if it is one, and has everything stop.
func (r *report) failed(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	r.errs = append(r.errs, err)
	r.mu.Unlock()
	r.end()
}

// first returns what went wrong first, nil if nothing has.
func (r *report) first() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) == 0 {
		return nil
	}
	return r.errs[0]
}

// result returns what has gone wrong, the first thing first, and last what still runs, with its stacks (M1).
func (r *report) result() error {
	r.mu.Lock()
	errs, names := slices.Clone(r.errs), slices.Clone(r.names)
	r.mu.Unlock()
	slices.Reverse(names) // what was started first waits for the others
	for i, name := range names {
		if !slices.Contains(names[:i], name) {
			errs = append(errs, fmt.Errorf("%s has not stopped in time%s:\n%s", name, r.at(name), stacks(r.label(name))))
		}
	}
	return errors.Join(errs...)
}

// stacks returns the stacks of all goroutines that carry the label: those that the function started, too.
func stacks(value string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	wanted := fmt.Sprintf("%q:%q", label, value) // how labels stand in a profile
	var found []string
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, wanted) {
			found = append(found, block)
		}
	}
	return strings.Join(found, "\n\n")
}
