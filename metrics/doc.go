// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics feeds Prometheus from the hooks. It is the one package that links the Prometheus library: who does not
// import it does not carry it.
//
//	registry := prometheus.NewRegistry()
//	queues, err := metrics.Workqueue(registry)
//	c := controller.NewWithQueue("website", r, controller.Options{}, workqueue.Options[types.NamespacedName]{Hooks: queues})
//
// Nothing is registered anywhere but with the Registerer that is given (M5), so two managers in one process, or a host with
// metrics of its own, do not meet.
package metrics
