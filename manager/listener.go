// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/server"
)

type listener struct {
	field string
	o     server.Options
}

func (o *Options) listeners() (all []listener) {
	add := func(field, name, address string, so server.Options) {
		so.Name = cmp.Or(so.Name, name)
		if so.Address == "" && so.Listener == nil {
			so.Address = address
		}
		all = append(all, listener{field, so})
	}
	if h := o.Health; h != nil {
		add("Health", "health server", ":8081", server.Options{Plain: true, Address: h.Address, Listener: h.Listener})
	}
	if o.Server != nil {
		add("Server", "server", ":8443", *o.Server)
	}
	if s := o.MetricsServer; s != nil {
		address := ":8443"
		if s.Plain {
			address = ":8080"
		}
		add("MetricsServer", "metrics server", address, *s)
	}
	if o.Webhooks != nil && !argument.IsNil(o.Webhooks) {
		add("Webhooks", "webhook server", ":9443", o.Webhooks.Server())
	}
	if o.Pprof != "" {
		add("Pprof", "pprof server", "", server.Options{Plain: true, Address: o.Pprof})
	}
	return all
}

func (o *Options) validateServers() error {
	var wrong []error
	if o.Health != nil && o.Health.StalledAfter < 0 {
		wrong = append(wrong, fmt.Errorf("manager.Options.Health.StalledAfter: %s, must not be negative", o.Health.StalledAfter))
	}
	if o.Metrics != nil && argument.IsNil(o.Metrics) {
		wrong = append(wrong, errors.New("manager.Options.Metrics: it is a nil pointer; use the result of metrics.New"))
	}
	if o.Metrics == nil && o.MetricsServer != nil {
		wrong = append(wrong, errors.New("manager.Options.MetricsServer: there is nothing to serve; set Metrics as well, to the result of metrics.New"))
	}
	if o.Webhooks != nil && argument.IsNil(o.Webhooks) {
		wrong = append(wrong, errors.New("manager.Options.Webhooks: it is a nil pointer; use the result of webhook.New"))
	}
	all := o.listeners()
	for i, a := range all {
		if err := a.o.Validate(); err != nil {
			wrong = append(wrong, fmt.Errorf("manager.Options.%s: %w", a.field, err))
		}
		for _, b := range all[i+1:] {
			if sameAddress(a.o.Address, b.o.Address) {
				wrong = append(wrong, fmt.Errorf("manager.Options.%s and .%s have the same port, %s and %s; give each one of its own", a.field, b.field, a.o.Address, b.o.Address))
			}
		}
	}
	return errors.Join(wrong...)
}

func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" || portA == "" {
		return false
	}
	every := []string{"", "0.0.0.0", "::"}
	return hostA == hostB || slices.Contains(every, hostA) || slices.Contains(every, hostB)
}
