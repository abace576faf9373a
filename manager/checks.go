// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"strings"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/server"
)

// checksOf makes the checks of a controller for /livez and /readyz.
func checksOf(c Controller, o *HealthOptions, ready <-chan struct{}) (alive, synced *server.Check) {
	name := "controller-" + c.Name()
	if o != nil && o.StalledAfter > 0 {
		ask := c.Alive(o.StalledAfter)
		alive = server.NewCheck(name, func(context.Context) error { return ask() })
	}
	return alive, server.NewCheck(name, func(context.Context) error { return unready(c, ready) })
}

// unready describes what the controller waits for, unless the manager is ready.
func unready(c Controller, ready <-chan struct{}) error {
	waits := strings.Join(c.Unsynced(), "; ")
	switch {
	case !run.Closed(c.Synced()) && !run.Closed(ready):
		return errors.New(strings.TrimSuffix("it waits for its sources: "+waits, ": "))
	case waits != "":
		return server.Remark(waits)
	default:
		return nil
	}
}

// informersCheck makes a check that remarks which informers are in trouble.
func informersCheck(c *cache.Cache) *server.Check {
	return server.NewCheck("informers", func(context.Context) error {
		var troubled []string
		for _, s := range c.States() {
			if s.Err != nil {
				troubled = append(troubled, s.String())
			}
		}
		if troubled == nil {
			return nil
		}
		return server.Remark(strings.Join(troubled, "; "))
	})
}
