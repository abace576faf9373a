// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"  // leader_election_*, rest_client_*
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // workqueue_* of the host's queues

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/metrics"
)

// host contains what the program creates before its controllers, and what they are made of.
type host struct {
	options *options
	factory informers.SharedInformerFactory // started after all controllers are created
	clients kubernetes.Interface            // of the plain controllers

	// For Setpoint's controllers only.
	ours    *client.Client
	cache   *cache.Cache // adopts the factory's informers and has no others
	metrics *hook.Hook
}

// newHost returns a host. Setpoint's metrics need a prefix: component-base registers the names
// without one when the host's first queue is created, and panics if they are taken. The host's own
// handler serves them all.
func newHost(o *options) (*host, error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	ofOurs, err := metrics.New(prometheus.WrapRegistererWithPrefix("kubestyle_", legacyregistry.Registerer()))
	if err != nil {
		return nil, err
	}
	m := ofOurs.Hook()
	ours, err := client.New(cfg, client.Options{FieldOwner: "kubestyle", Hook: m})
	if err != nil {
		return nil, err
	}
	// With this HTTP client, the fence protects these writes, too.
	clients, err := kubernetes.NewForConfigAndClient(ours.Config(), ours.HTTPClient())
	if err != nil {
		return nil, err
	}
	return &host{
		options: o, clients: clients, ours: ours, metrics: m,
		factory: informers.NewSharedInformerFactory(clients, 0),
		cache:   cache.New(ours, cache.Options{Hook: m}),
	}, nil
}
