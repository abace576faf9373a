// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"  // leader_election_*, rest_client_*
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // workqueue_* of the host's queues

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/metrics"
)

// host is what the program has before there are controllers, and what they are made of.
type host struct {
	options *options
	factory informers.SharedInformerFactory // started when all controllers are made
	clients kubernetes.Interface            // of the plain controllers

	// What Setpoint's need in addition.
	ours    *client.Client
	cache   *cache.Cache // has the factory's informers, and none of its own
	metrics *metrics.Metrics
}

// newHost makes them. The names without a prefix are those of component-base, which takes them when the first of the host's queues is
// made, and panics if somebody has them.
func newHost(o *options) (*host, error) {
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	m, err := metrics.New(legacyregistry.Registerer(), metrics.Options{Prefix: "kubestyle_"})
	if err != nil {
		return nil, err
	}
	ours, err := client.New(cfg, client.Options{FieldOwner: "kubestyle", Hooks: m.Client})
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfigAndClient(ours.Config(), ours.HTTPClient()) // so that the fence is before these, too
	if err != nil {
		return nil, err
	}
	return &host{
		options: o, clients: clients, ours: ours, metrics: m,
		factory: informers.NewSharedInformerFactory(clients, 0),
		cache:   cache.New(ours, cache.Options{Hooks: m.Cache}),
	}, nil
}
