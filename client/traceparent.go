// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"maps"
	"slices"

	"github.com/setpoint-dev/setpoint/internal/traceparent"
)

const traceParent = "TraceParent"

// TraceParent sets the annotation tracing.k8s.io/traceparent (KEP-5915) of a new object to trace,
// in the W3C format of a traceparent header. Controllers that reconcile the object then link their
// spans to the span that created it. If trace is empty, the option does nothing.
//
// It is for Create, and for the objects that [CreateOrUpdate] and [CreateOrPatch] create. Their
// updates do not set it, and other calls return an error: only the API server knows whether an
// update changes anything, and the annotation would make a write of one that does not. A trace of
// another format is an error.
//
// The annotation counts as no change. [UnlessAlready] ignores it. CreateOrUpdate, CreateOrPatch and
// [PatchFrom] do not remove it; Patch does.
func TraceParent(trace string) Option {
	return Option{name: traceParent, fits: []verb{creating}, set: func(c *call) error {
		if c.trace = trace; trace != "" && !traceparent.Valid(trace) {
			return fmt.Errorf("it is %.80q; give a W3C traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", trace)
		}
		return nil
	}}
}

// withoutTrace leaves out TraceParent.
func withoutTrace(options []Option) []Option {
	isTraceParent := func(o Option) bool { return o.name == traceParent }
	if !slices.ContainsFunc(options, isTraceParent) {
		return options
	}
	return slices.DeleteFunc(slices.Clone(options), isTraceParent)
}

// lostTrace reports whether only before has the annotation, as after code that assigns all
// annotations. This is no change: else that code would remove what it has not set.
func lostTrace(before, after Object) (trace string, lost bool) {
	trace, had := before.GetAnnotations()[traceparent.Annotation]
	_, has := after.GetAnnotations()[traceparent.Annotation]
	return trace, had && !has
}

func setTrace(obj Object, trace string) {
	all := maps.Clone(obj.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	all[traceparent.Annotation] = trace
	obj.SetAnnotations(all)
}
