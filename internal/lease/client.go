// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Config returns a copy of a configuration for requests for Leases: with an addition to the user
// agent, and without limits, because each request has one of its own.
func Config(cfg *rest.Config, agent string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	// rest.AddUserAgent would replace the host's
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent()) + "/" + agent
	cfg.Timeout = 0 // it would end watches
	cfg.QPS, cfg.RateLimiter = -1, nil
	return cfg
}

// Host returns the API server of a configuration, as in a ledger.
func Host(cfg *rest.Config) (string, error) {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return "", err
	}
	return server.Scheme + "://" + server.Host + strings.TrimSuffix(server.Path, "/"), nil
}

// EndWatch returns when the goroutine of a watch has ended.
func EndWatch(w watch.Interface) {
	w.Stop()
	for range w.ResultChan() {
	}
}
