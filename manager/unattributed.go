// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"runtime"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
)

// reconciling is what a controller may implement. A *controller.Controller does.
type reconciling interface {
	// Reconciles reports whether a Reconcile runs on the goroutine whose stack this is, or has
	// started that goroutine, and of which key.
	Reconciles(stack string) (key string, ok bool)
}

// tellUnattributed logs, once for each controller, verb and resource, that a Reconcile writes with
// another context than its own. Only what is certain is logged: the request is made by the
// goroutine of a Reconcile, or by one that it has started.
func (m *Manager) tellUnattributed() func(hook.APIRequest) {
	type what struct {
		controller, verb string
		resource         schema.GroupResource
	}
	var told sync.Map // of what; there are as many as the program writes
	return func(r hook.APIRequest) {
		buf := make([]byte, 32<<10) // what has started the goroutine is last
		stack := string(buf[:runtime.Stack(buf, false)])
		m.mu.Lock()
		controllers := slices.Clone(m.controllers)
		m.mu.Unlock()
		for _, c := range controllers {
			of, ok := c.Controller.(reconciling)
			if !ok {
				continue
			}
			key, ok := of.Reconciles(stack)
			if !ok {
				continue
			}
			resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
			if _, before := told.LoadOrStore(what{c.Name(), r.Verb, resource}, true); !before {
				m.logger().Warn("a Reconcile writes with a context that is not its own, so nothing waits until its caches show the write; "+
					"make it with the Reconcile's context, or with ledger.Without(ctx) if that is meant",
					"controller", c.Name(), "key", key, "verb", r.Verb, "resource", resource.String(), "userAgent", r.UserAgent)
			}
			return
		}
	}
}
