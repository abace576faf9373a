// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// WaitReady returns nil when every controller that was added before Run can lead: each source and
// handle is synced, or has a problem that the log names. If Run ends earlier, it returns Run's
// error. If ctx ends earlier, the error names what is not synced. Call it at any time, also before
// Run.
func (m *Manager) WaitReady(ctx context.Context) error {
	ready := m.registry.ready
	select {
	case <-ready:
	case <-m.ended:
	case <-ctx.Done():
	}
	switch {
	case run.Closed(ready):
		return nil
	case run.Closed(m.ended):
		return cmp.Or(m.result, fmt.Errorf("the manager %q has stopped before it was ready", m.o.Name))
	}
	var waits []string
	for _, c := range m.registry.current() {
		if !run.Closed(c.Synced()) {
			waits = append(waits, fmt.Sprintf("the controller %q waits for its sources: %s", c.Name(), strings.Join(c.Report().Unsynced, "; ")))
		}
	}
	why := errors.New(cmp.Or(strings.TrimSuffix(strings.Join(waits, "; "), ": "), "Run has not begun"))
	return fmt.Errorf("the manager %q is not ready: %w: %w", m.o.Name, why, context.Cause(ctx))
}

func (m *Manager) becomeReady(ctx context.Context) error {
	controllers := m.registry.current()
	if !allSynced(ctx, controllers) {
		return nil
	}
	log := m.report.logger()
	if _, disabled := m.registry.names(); disabled != nil {
		log = log.With("disabled", disabled)
	}
	log.Info("ready", "controllers", len(controllers))
	if _, anything := m.registry.hadAny(); !anything {
		log.Warn("the manager has no controllers and no functions; pass them to Add")
	}
	close(m.registry.ready)
	return nil
}
