// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// Queue is the one thing that a source does with a queue.
type Queue[K comparable] interface {
	// AddAll makes keys due. It does not wait for workers.
	AddAll(keys []K, how workqueue.How)
}

// Source delivers keys of type K. It is given to one controller.
type Source[K comparable] interface {
	// Validate says, before anything runs, what is wrong with how the source was put together.
	Validate() error
	// Run delivers to q until ctx is done, joins what it started, and returns. It is called once. An error means that the
	// source could not start; trouble with the API server is not one (see State).
	Run(ctx context.Context, q Queue[K], h *hook.Source) error
	// Synced is closed when every object of the initial list has been handled.
	Synced() <-chan struct{}
	// State says, in one line, where the source stands.
	State() string
	// String names the source in reports.
	String() string
}
