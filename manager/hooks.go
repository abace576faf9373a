// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"runtime"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
)

// cacheHooks logs informers that wait, fail or recover.
func cacheHooks(report *report) *hook.Cache {
	return &hook.Cache{
		InformerState: func(s hook.InformerState) {
			log := report.logger().With("kind", s.Kind)
			if s.Scope != "" {
				log = log.With("scope", s.Scope)
			}
			switch {
			case apierrors.IsTooManyRequests(s.Err): // also of a CRD that was installed a moment ago
				log.Info("the API server asks an informer to wait", "err", s.Err)
			case s.Err != nil:
				log.Warn("an informer is "+string(s.Phase), "err", s.Err)
			default:
				log.Info("an informer is well again")
			}
		},
		BrokenObject: func(kind, object string, err error) {
			report.logger().Warn("an object is broken; all others are kept up to date", "kind", kind, "object", object, "err", err)
		},
	}
}

// clientHooks logs writes without the context of their Reconcile and, if there are terms, writes
// without a term, once for each resource.
func clientHooks(roster *roster) *hook.Client {
	hooks := &hook.Client{Unattributed: unattributed(roster)}
	if roster.o.LeaderElection == nil {
		return hooks
	}
	var told sync.Map // of schema.GroupResource; there are as many as the program writes
	hooks.Unfenced = func(r hook.APIRequest) {
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		if _, before := told.LoadOrStore(resource, true); !before {
			roster.report.logger().Warn("a write without a term of leadership: if this replica loses the lease, it is not held back; "+
				"make it with the context of the Reconcile, or with term.Without", "resource", resource.String(), "verb", r.Verb)
		}
	}
	return hooks
}

// unattributed logs, once for each controller, verb and resource, that a Reconcile writes with
// another context than its own. Only what is certain is logged: the request is made by the
// goroutine of a Reconcile, or by one that it has started.
func unattributed(roster *roster) func(hook.APIRequest) {
	type what struct {
		controller, verb string
		resource         schema.GroupResource
	}
	var told sync.Map // of what; there are as many as the program writes
	return func(r hook.APIRequest) {
		buf := make([]byte, 32<<10) // what has started the goroutine is last
		stack := string(buf[:runtime.Stack(buf, false)])
		for _, c := range roster.current() {
			key, ok := c.Reconciles(stack)
			if !ok {
				continue
			}
			resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
			if _, before := told.LoadOrStore(what{c.Name(), r.Verb, resource}, true); !before {
				roster.report.logger().Warn("a Reconcile writes with a context that is not its own, so nothing waits until its caches show the write; "+
					"make it with the Reconcile's context, or with ledger.Without(ctx) if that is meant",
					"controller", c.Name(), "key", key, "verb", r.Verb, "resource", resource.String(), "userAgent", r.UserAgent)
			}
			return
		}
	}
}
