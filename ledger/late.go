// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import "fmt"

// LateWriteError is the error of a write that began after its Reconcile had returned: a goroutine
// that the Reconcile left behind made it, with the Reconcile's context. Nothing was sent. The next
// Reconcile of the key would not have waited until its informers show such a write.
type LateWriteError struct {
	// Controller, Key and ReconcileID are those of the Reconcile.
	Controller  string
	Key         any
	ReconcileID string
	// Request is what was to be sent.
	Request Request
}

// Error names the Reconcile and the request, and the remedy.
func (e *LateWriteError) Error() string {
	return fmt.Sprintf("client: controller %q: %s was refused because the Reconcile of %v has returned; finish all writes before "+
		"Reconcile returns, or make those of background work with ledger.Without(ctx)", e.Controller, e.Request.String(), e.Key)
}
