// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// Options configures Wrap.
type Options struct {
	Codecs serializer.CodecFactory // decode the written objects that a ledger wants
	Hooks  hook.Client
	Strict bool // refuse requests that may write and have no term
}

// exchange is one request with a ledger, and its answer.
type exchange struct {
	*Options

	buffers      *buffers
	ledger       *ledger.Ledger
	term         *term.Term // nil: none
	entry        ledger.Entry
	precondition types.UID
}

// failed enters that there is no answer.
func (e *exchange) failed(err error, unsent bool) {
	e.entry.Update(func(w *ledger.Write) {
		w.Took, w.Err = time.Since(w.Started), err
		switch {
		case unsent:
			w.Effect, w.Unknown = "", ""
		case w.Effect != "":
			w.Effect, w.Unknown = ledger.Uncertain, "there was no answer: "+err.Error()
		}
	})
	e.report()
}

// unread enters why the answer to a write does not contain the version.
func (e *exchange) unread(why string) {
	e.entry.Update(func(w *ledger.Write) { w.Unknown, w.UID = why, e.precondition })
	e.report()
}

// report tells the term what was written, and calls the hook.
func (e *exchange) report() {
	if e.term == nil && e.Hooks.Requested == nil {
		return
	}
	var event hook.APIRequest
	e.entry.Update(func(w *ledger.Write) {
		if e.term != nil {
			e.term.Wrote(w)
		}
		event = eventOf(&w.Request, e.ledger.Origin().Controller, w.Unknown)
	})
	if e.Hooks.Requested != nil {
		e.Hooks.Requested(event)
	}
}
