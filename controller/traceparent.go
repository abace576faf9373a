// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/traceparent"
	"github.com/setpoint-dev/setpoint/workqueue"
)

const mostTraceParents = 4

// traceParents implements tracer.
func (c *Controller[K]) traceParents(key any, reasons []workqueue.Reason) (found []string) {
	add := func(o handler.Object) {
		value, _ := annotation(o, traceparent.Annotation)
		if traceparent.Valid(value) && len(found) < mostTraceParents && !slices.Contains(found, value) {
			found = append(found, value)
		}
	}
	all := c.inputs.all()
	for _, i := range all {
		s, ok := i.source.(interface {
			Names(key K, o handler.Object) bool
		})
		name, named := nameOf(key)
		if !ok || !named {
			continue
		}
		if o := c.inputs.informers.Stored(i.handle(), name); o != nil && s.Names(key.(K), o) { //nolint:forcetypeassert // see info
			add(o)
		}
	}
	for n := range reasons {
		r := &reasons[n]
		for _, i := range all {
			if i.source == nil || i.handle() == nil || i.String() != r.Source {
				continue
			}
			// A source in another cluster may have the same name.
			if o := c.inputs.informers.Stored(i.handle(), objectOf(r)); o != nil && string(o.GetUID()) == r.UID {
				add(o)
			}
		}
	}
	return found
}

// nameOf returns the name in a key, if its type has one.
func nameOf(key any) (name types.NamespacedName, ok bool) {
	switch key := key.(type) {
	case types.NamespacedName:
		return key, true
	case handler.ClusterKey:
		return key.NamespacedName, true
	}
	return name, false
}

func objectOf(r *workqueue.Reason) types.NamespacedName {
	namespace, name, namespaced := strings.Cut(r.Object, "/")
	if !namespaced {
		return types.NamespacedName{Name: r.Object}
	}
	return types.NamespacedName{Namespace: namespace, Name: name}
}
