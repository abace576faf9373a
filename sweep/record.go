// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// record is what happened in a run.
type record struct {
	all      []*write                               // of all programs
	writes   []*write                               // of the operator
	views    map[string]schema.GroupVersionResource // of the operator
	step     int                                    // the number of steps that have begun
	outdated map[schema.GroupVersionResource]bool   // lists of any version
	leases   bool
	fired    bool

	changes  []change
	before   map[schema.GroupVersionResource][]unstructured.Unstructured
	after    []moment           // by step: the newest change when it had converged
	states   []map[string][]any // by step: the normalised objects, by key
	created  map[string]int
	deleted  map[string]int
	unseen   map[string]string // by write: an own write that the process did not see
	failing  error             // of Idle, after the last step
	notIdle  []string          // after which steps Idle failed, and how
	failures []string          // what no run may do

	log, requests, events strings.Builder // artefacts
}

func newRecord() record {
	return record{views: map[string]schema.GroupVersionResource{}, outdated: map[schema.GroupVersionResource]bool{}, unseen: map[string]string{}}
}

func (r *run) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.failures = append(r.record.failures, fmt.Sprintf(format, args...))
}

func (r *run) logf(format string, args ...any) { r.writef(&r.record.log, format, args...) }

func (r *run) writef(to *strings.Builder, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(to, "%s %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// logWriter writes the log of a program.
type logWriter struct {
	r   *run
	who string
}

func (w logWriter) Write(p []byte) (int, error) {
	w.r.logf("%s: %s", w.who, strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func (r *run) written() []*write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.record.writes)
}

func (r *run) beginsStep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.step++
}

// lists records a list that may be old.
func (r *run) lists(of schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.outdated[of] = true
}

func (r *run) watches(of schema.GroupVersionResource, view string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.views[view] = of
}

// watched reports whether the operator has a view of a kind.
func (r *record) watched(of schema.GroupVersionResource) bool {
	for _, kind := range r.views {
		if kind == of {
			return true
		}
	}
	return false
}

func (r *run) usesLeases() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record.leases = true
}
