// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/setpoint-dev/setpoint/internal/traceparent"
)

const traceParent = "TraceParent"

// TraceParent sets the annotation tracing.k8s.io/traceparent (KEP-5915) of the written object to
// trace, in the W3C format of a traceparent header. Controllers that reconcile the object then link
// their spans to the span that made the change. If trace is empty, the annotation stays as it is.
//
// The annotation alone never causes a write. So only calls that know of a change take the option:
//
//   - Create.
//   - [CreateOrUpdate], [CreateOrPatch] and [PatchFrom], for a change of more than the status.
//   - Apply with [UnlessAlready], if live is nil, or if this process has applied the object with
//     another configuration before. Else the annotation keeps its value: also in the first Apply of
//     an existing object after a start of the process.
//
// Other calls return an error, as does a trace of another format.
func TraceParent(trace string) Option {
	return Option{name: traceParent, fits: []verb{creating, applying}, set: func(c *call) error {
		c.trace, c.traced = trace, true
		if trace != "" && !traceparent.Valid(trace) {
			return fmt.Errorf("it is %.80q; give a W3C traceparent, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", trace)
		}
		return nil
	}}
}

func (c *call) checkTrace(v verb, subresource string) error {
	switch {
	case !c.traced:
		return nil
	case subresource != "":
		return errors.New("client.TraceParent is not for subresources, which report a state and request no change")
	case v == applying && !c.compare:
		return errors.New("client.TraceParent needs client.UnlessAlready; without it, an Apply that changes nothing would become a write")
	}
	return nil
}

// takeTrace separates TraceParent from the other options of a function.
func takeTrace(options []Option) (trace string, others []Option, err error) {
	if !slices.ContainsFunc(options, isTraceParent) {
		return "", options, nil
	}
	var c call
	for _, o := range options {
		if !isTraceParent(o) {
			others = append(others, o)
		} else if err := o.set(&c); err != nil {
			return "", nil, fmt.Errorf("client.TraceParent: %w", err)
		}
	}
	return c.trace, others, nil
}

func isTraceParent(o Option) bool { return o.name == traceParent }

// lostTrace reports whether only before has the annotation, as after code that assigns all
// annotations. This is no change: else each change of that code would be followed by one more.
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

// patchTrace adds the annotation to a patch.
func patchTrace(patch map[string]any, trace string) {
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[traceparent.Annotation] = trace
}

// traceAfter returns the annotation of an apply, or "". Unless it is sure that the apply changes
// something, the annotation keeps its value. It is left out only if it is not ours: an apply
// without it would remove ours, and an apply with another client's would become a co-owner.
func (c *call) traceAfter(last *lastApply, body []byte) string {
	var live string
	if c.already != nil {
		live = traceOf(c.already)
	}
	switch {
	case !c.traced:
		return ""
	case c.trace != "" && (c.already == nil || last != nil && last.body != sha256.Sum256(body)):
		return c.trace
	case last == nil || last.trace == live:
		return live
	default:
		return ""
	}
}

func traceOf(o Object) string { return o.GetAnnotations()[traceparent.Annotation] }

// withTrace adds the annotation to annotations in JSON, which may be nil.
func withTrace(annotations json.RawMessage, trace string) (json.RawMessage, error) {
	all := map[string]string{}
	if annotations != nil {
		if err := json.Unmarshal(annotations, &all); err != nil {
			return nil, err
		}
	}
	all[traceparent.Annotation] = trace
	return json.Marshal(all)
}
