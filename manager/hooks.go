// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/logging"
)

func cacheHook(report *report, cluster string) *hook.Hook {
	var broken logging.Repetition
	return hook.Join(
		hook.On(func(s *hook.InformerState) {
			log := report.logger().With("kind", s.Kind)
			if s.Scope != "" {
				log = log.With("scope", s.Scope)
			}
			switch {
			case apierrors.IsTooManyRequests(s.Err): // usual for a CRD that was just installed
				log.Info("the API server asks an informer to wait", "err", s.Err)
			case s.Err != nil:
				log.Warn("an informer is "+string(s.Phase), "err", s.Err)
			default:
				log.Info("an informer has recovered")
			}
		}),
		hook.On(func(e *hook.BrokenObject) {
			if args, ok := broken.Few("broken", e.Kind, "kind", e.Kind, "object", e.Object, "err", e.Err); ok {
				logOf(report, cluster).Warn("an object cannot be decoded or transformed; the others stay current", args...)
			}
		}),
		hook.On(func(r *hook.Restored) {
			if report.restores.first(r.Host, cluster) {
				logOf(report, cluster).Warn("the API server was restored from a backup, or replaced; all kinds are listed again",
					"host", r.Host, "kind", r.Kind, "err", r.Err, "informers", r.Informers, "within", r.Within)
			}
		}),
	)
}

// restores limits the log if several clusters are the same API server: each finds it by itself.
type restores struct {
	mu   sync.Mutex // guards last
	last map[string]restore
}

type restore struct {
	cluster string
	at      time.Time
}

// first reports whether no other cluster has reported the host in the last 5 minutes.
func (r *restores) first(host, cluster string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[host]
	if ok && last.cluster != cluster && time.Since(last.at) < 5*time.Minute {
		return false
	}
	if r.last == nil {
		r.last = map[string]restore{}
	}
	r.last[host] = restore{cluster, time.Now()}
	return true
}

func logOf(r *report, cluster string) *slog.Logger {
	if cluster == "" {
		return r.logger()
	}
	return r.logger().With("cluster", cluster)
}

// clientHook logs writes without a term only once for each resource.
func clientHook(registry *registry) *hook.Hook {
	if registry.o.LeaderElection == nil {
		return nil
	}
	var logged sync.Map // of schema.GroupResource; bounded by the resources that the program writes
	return hook.On(func(r *hook.Unfenced) {
		if r.Err != nil { // refused: the caller has the error
			return
		}
		resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
		if _, before := logged.LoadOrStore(resource, true); !before {
			registry.report.logger().Warn("a write without a term of leadership, which the fence does not check; "+
				"use the context of the Reconcile, or term.Without(ctx) if that is intended", "resource", resource.String(), "verb", r.Verb)
		}
	})
}
