// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/peek"
	"github.com/setpoint-dev/setpoint/ledger"
	"github.com/setpoint-dev/setpoint/term"
)

// exchange is one request with a ledger, and its answer.
type exchange struct {
	*roundTripper

	ledger       *ledger.Ledger
	term         *term.Term // nil: none
	entry        *ledger.Entry
	answer       *answer // for what may write
	precondition types.UID
}

// begin enters a request, unless it must not be made. The entry of a write and what its answer needs
// are one allocation.
func (e *exchange) begin(req *http.Request) error {
	request, precondition := e.read(req)
	if request.Mutates() {
		m := &struct {
			entry  ledger.Entry
			answer answer
		}{}
		e.entry, e.answer = &m.entry, &m.answer
	} else {
		e.entry = &ledger.Entry{}
	}
	e.precondition = types.UID(precondition)
	return e.ledger.Begin(e.entry, request)
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

// answered enters the head of the answer, and has the body of the answer to a write read along with
// the caller.
func (e *exchange) answered(req *http.Request, resp *http.Response) {
	mayHaveWritten := false
	e.entry.Update(func(w *ledger.Write) {
		w.Took, w.Status = time.Since(w.Started), resp.StatusCode
		switch code := resp.StatusCode; {
		case w.Effect == "":
		case code >= 200 && code < 300:
			mayHaveWritten = true
			w.Effect, w.Unknown = ledger.Accepted, "the answer is not read yet"
		case code >= 500 && code != http.StatusNotImplemented:
			w.Effect, w.Unknown = ledger.Uncertain, "the answer is "+resp.Status
		default:
			w.Effect, w.Unknown = "", ""
		}
	})
	if !mayHaveWritten {
		e.report()
		return
	}
	contentType, encoding := resp.Header.Get("Content-Type"), resp.Header.Get("Content-Encoding")
	format := peek.FormatOf(contentType)
	switch {
	case resp.Body == nil || resp.Body == http.NoBody:
		e.unread("the answer is empty")
	case format == peek.Unknown:
		e.unread(fmt.Sprintf("the answer is %q, which cannot be read", contentType))
	case encoding != "" && encoding != "identity" && encoding != "gzip":
		e.unread(fmt.Sprintf("the answer is encoded as %q, which cannot be read", encoding))
	default:
		a := e.answer
		a.exchange, a.body, a.next = *e, resp.Body, firstLook
		a.format, a.contentType, a.gzip = format, contentType, encoding == "gzip"
		a.getBody, a.sentAs = req.GetBody, req.Header.Get("Content-Type")
		a.decode = e.wanted()
		resp.Body = a
	}
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
