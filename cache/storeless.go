// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// storeless is an EventSource as an informer, whose store stays empty.
type storeless struct {
	toolscache.SharedIndexInformer // never runs

	events EventSource
}

func (s storeless) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return s.events.AddEventHandlerWithOptions(h, options)
}

func (s storeless) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	return s.events.RemoveEventHandler(handle)
}

func (s storeless) HasSynced() bool { return run.Closed(s.HasSyncedChecker().Done()) }

func (s storeless) HasSyncedChecker() toolscache.DoneChecker { return s.events.HasSyncedChecker() }

func (s storeless) IsStopped() bool { return s.events.IsStopped() }
