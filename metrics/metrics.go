// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/setpoint-dev/setpoint/hook"
)

// Options configures New. The zero value works.
type Options struct {
	// Prefix is put before each name: "website_" turns workqueue_depth into
	// website_workqueue_depth. Use it for a registry in which the names are taken. It consists of
	// letters, digits and underscores, and does not begin with a digit. Default: none.
	Prefix string
}

var prefix = regexp.MustCompile("^[a-zA-Z_][a-zA-Z0-9_]*$")

// Validate returns an error that names the invalid field.
func (o Options) Validate() error {
	if o.Prefix != "" && !prefix.MatchString(o.Prefix) {
		return fmt.Errorf("metrics.Options.Prefix: %q must be letters, digits and underscores, and not begin with a digit, such as \"website_\"", o.Prefix)
	}
	return nil
}

// New registers one collector with r and returns the hooks that feed it, for manager.Options.Hooks.
// They serve any number of managers, controllers and queues, and are safe for concurrent use. If
// several have the same name, they share series, which are deleted when the last of them has
// stopped. To observe more, combine the hooks with others: see Hooks.With. New registers nothing
// elsewhere. It returns an error if r is nil, if the options are invalid, or if r refuses the
// collector, usually because names are taken.
func New(r prometheus.Registerer, o Options) (hook.Hooks, error) {
	if r == nil {
		return hook.Hooks{}, errors.New("metrics.New: the Registerer is nil; prometheus.NewRegistry makes one")
	}
	if err := o.Validate(); err != nil {
		return hook.Hooks{}, err
	}
	mu := &lock{}
	controllers := newControllers(mu)
	queues, sources, caches, requests, leases := newQueues(mu), newSources(mu), newCaches(mu), newRequests(mu, controllers.open.has), newLeases()
	events := newEvents(mu)
	controllers.goneLocked = requests.forgetLocked
	all := collectors{queues, controllers, sources, caches, requests, leases, events}
	if err := prometheus.WrapRegistererWithPrefix(o.Prefix, r).Register(all); err != nil {
		return hook.Hooks{}, fmt.Errorf("metrics.New: set Options.Prefix if these names are taken, or give it a registry of its own: %w", err)
	}
	return hook.Hooks{
		Queue: queues.hooks(), Controller: controllers.hooks(), Source: sources.hooks(),
		Cache: caches.hooks(), Client: requests.hooks(), LeaderElection: leases.hooks(),
		Events: events.hooks(),
	}, nil
}
