// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"

	"github.com/setpoint-dev/setpoint/internal/contextkey"
)

// Ledger holds the requests of one Reconcile in the order of their starts. It is safe for
// concurrent use. It still records answers that come after the Reconcile.
type Ledger interface {
	// Writes returns the writes so far, including those in flight or with a lost answer. You own
	// the slice.
	Writes() []Write
	// Requests returns the requests so far, within the limits. You own the slice.
	Requests() []Request
}

// FromContext returns the context's ledger, or nil.
func FromContext(ctx context.Context) Ledger {
	l, _ := ctx.Value(contextkey.Ledger{}).(Ledger)
	return l
}

// Without returns a context without a ledger, for background work that outlives its Reconcile. It
// keeps the term of leadership.
func Without(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextkey.Ledger{}, contextkey.NoLedger{})
}

// LateWriteError is the error of a write that began after its Reconcile had returned. It was not
// sent, because the key's next Reconcile would not wait for it.
type LateWriteError struct {
	// Controller, Key and ReconcileID identify the Reconcile.
	Controller  string
	Key         any
	ReconcileID string
	// Request was not sent.
	Request Request
}

// Error names the Reconcile, the request and the remedy.
func (e *LateWriteError) Error() string {
	return fmt.Sprintf("client: controller %q: %s was refused because the Reconcile of %v has returned; finish all writes before "+
		"Reconcile returns, or make those of background work with ledger.Without(ctx)", e.Controller, e.Request.String(), e.Key)
}
