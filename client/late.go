// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/http"
)

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

// Error names the Reconcile and the request, and what to do.
func (e *LateWriteError) Error() string {
	return fmt.Sprintf("client: controller %q: %s was refused because the Reconcile of %v has returned; finish all writes before "+
		"Reconcile returns, or make those of background work with client.WithLedger(ctx, nil)", e.Controller, e.Request.String(), e.Key)
}

// unattributed tells of a request that may write and has no ledger, unless that was on purpose.
func (t *ledgerTransport) unattributed(req *http.Request, onPurpose bool) {
	if onPurpose || t.hooks.Unattributed == nil || req.Method == http.MethodGet || req.Context().Value(ledgerKey{}) != nil {
		return
	}
	r := t.known(req, nil)
	if !r.fenced() {
		return
	}
	event := r.event("", "")
	event.UserAgent = req.UserAgent()
	t.hooks.Unattributed(event)
}

// refuseLate ends a write that begins after the end of its Reconcile.
func (e *exchange) refuseLate(req *http.Request) error {
	closeBody(req)
	o := &e.ledger.origin
	err := &LateWriteError{Controller: o.Controller, Key: o.Key, ReconcileID: o.ReconcileID(), Request: e.record.Request}
	if o.Late != nil {
		o.Late(err)
	}
	return err
}
