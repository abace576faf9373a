// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// viewOf names what a watch shows. An informer is a view.
func viewOf(of schema.GroupResource, namespace string, q url.Values, accept string) string {
	name := of.String()
	if namespace != "" {
		name += " in " + namespace
	}
	for _, selector := range []string{"labelSelector", "fieldSelector"} {
		if s := q.Get(selector); s != "" {
			name += " with " + s
		}
	}
	if strings.Contains(accept, "as=PartialObjectMetadata") {
		name += ", metadata"
	}
	return name
}

// views returns the watches that the plan's fault makes old, if it is one of several kinds.
func (p Plan) views() fault.Match {
	m := allWatches
	if p.View != "" {
		m.Func = func(q *fault.Request) bool {
			return viewOf(schema.GroupResource{Group: q.Group, Resource: q.Resource}, q.Namespace, q.Query, q.Accept) == p.View
		}
	}
	return m
}

// dependents returns the views that show what is written between a write of the operator and its
// next one: by the operator itself, by a step, or by programs beside it.
func (r *record) dependents(w *write) (names []string) {
	changed := map[schema.GroupResource]bool{}
	after := false
	for _, other := range r.all {
		if after && other.under && other.effective {
			break
		}
		after = after || other == w
		if after && other.effective {
			changed[other.resource.GroupResource()] = true
		}
	}
	for name, of := range r.views {
		if changed[of.GroupResource()] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
