// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/wire"
	"github.com/setpoint-dev/setpoint/ledger"
)

// Options configures Wrap.
type Options struct {
	Codecs      serializer.CodecFactory // decode written objects for a ledger
	Hook        *hook.Hook
	RequireTerm bool // refuse requests that may write and have no term
}

type exchange struct {
	*Options

	buffers      *buffers
	ledger       *journal.Journal
	term         *fence.Term // nil: none
	entry        journal.Entry
	precondition types.UID
}

func (e *exchange) failed(req *http.Request, err error, unsent bool) {
	if !unsent {
		e.identify(req)
	}
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

func (e *exchange) unread(why string) {
	e.entry.Update(func(w *ledger.Write) { w.Unknown, w.UID = why, e.precondition })
	e.report()
}

func (e *exchange) report() {
	observed := hook.Gets[*hook.APIRequest](e.Hook)
	if e.term == nil && !observed {
		return
	}
	var event hook.APIRequest
	e.entry.Update(func(w *ledger.Write) {
		if e.term != nil {
			e.term.Wrote(w)
		}
		event = eventOf(&w.Request, e.ledger.Origin().Controller, w.Unknown)
	})
	if observed {
		e.Hook.Send(&event)
	}
}

const (
	firstLook   = 4 << 10 // bytes of a response to collect before parsing
	answerLimit = 1 << 20 // bytes to collect at most; metadata is near the beginning
)

// answered records the status of a response. A write's response is parsed while the caller reads
// it.
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
		if resp.StatusCode >= http.StatusInternalServerError {
			e.identify(req)
		}
		e.report()
		return
	}
	contentType, encoding := resp.Header.Get("Content-Type"), resp.Header.Get("Content-Encoding")
	format := wire.FormatOf(contentType)
	switch {
	case resp.Body == nil || resp.Body == http.NoBody:
		e.unread("the answer is empty")
	case format == wire.Unknown:
		e.unread(fmt.Sprintf("the answer is %q, which cannot be read", contentType))
	case encoding != "" && encoding != "identity" && encoding != "gzip":
		e.unread(fmt.Sprintf("the answer is encoded as %q, which cannot be read", encoding))
	default:
		a := &answer{
			exchange: e, format: format, contentType: contentType, gzip: encoding == "gzip", decode: wanted(e.ledger, e.entry.Request()),
			body: resp.Body, next: firstLook, replaces: e.replaced(req),
		}
		a.whole = a.gzip || a.decode || a.collects()
		resp.Body = a
	}
}

// answer wraps the body of a write's response. The caller does not notice it.
type answer struct {
	*exchange

	format      wire.Format
	contentType string
	gzip        bool
	decode      bool // the ledger wants the object, not only metadata
	whole       bool // the beginning is not enough
	replaces    string

	mu   sync.Mutex    // guards the fields below: a body may be closed while it is read
	body io.ReadCloser // nil after Close, so that a ledger does not keep it in memory
	seen *[]byte       // what the caller has read; nil at first
	next int           // length of seen at which to parse again
	done bool          // parsing is complete, or was given up
}

func (a *answer) Read(p []byte) (int, error) {
	a.mu.Lock()
	body := a.body
	a.mu.Unlock()
	if body == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := body.Read(p)
	if look, end := a.see(p[:max(n, 0)], err); look {
		a.look(end)
	}
	return n, err
}

func (a *answer) Close() error {
	a.mu.Lock()
	body, unfinished := a.body, !a.done
	a.body, a.done = nil, true
	a.mu.Unlock()
	if body == nil {
		return nil
	}
	err := body.Close()
	if unfinished {
		a.look("it was closed before its end")
	}
	return err
}

// see collects what the caller has read. look reports that it must be parsed. end is the reason if
// the body is incomplete.
func (a *answer) see(p []byte, err error) (look bool, end string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done {
		return false, ""
	}
	if a.seen == nil {
		a.seen = a.buffers.get()
	}
	*a.seen = append(*a.seen, p[:min(len(p), answerLimit+1-len(*a.seen))]...)
	switch {
	case err == nil && len(*a.seen) < a.next:
		return false, ""
	case errors.Is(err, io.EOF):
	case err != nil:
		end = "it was cut off: " + err.Error()
	case len(*a.seen) > answerLimit:
		end = "it has more than 1 MiB, and not at its beginning what was looked for"
	case a.whole:
		return false, ""
	default:
		a.next *= 4
		if obj, _ := wire.Read(a.format, *a.seen, wire.Options{Enough: true}); !obj.Stored() {
			return false, ""
		}
	}
	a.done = true
	return true, end
}

// look parses the collected bytes and records the result. It is called once.
func (a *answer) look(end string) {
	var data []byte
	if a.seen != nil {
		defer a.buffers.put(a.seen)
		data = *a.seen
	}
	defer func() { a.seen = nil }()
	if a.gzip {
		var err error
		if data, err = inflate(data); err != nil && end == "" {
			end = "it cannot be decompressed: " + err.Error()
		}
	}
	if a.collects() {
		a.collection(data, end)
	} else {
		a.object(data, end)
	}
	a.report()
}

func (a *answer) object(data []byte, end string) {
	obj, whole := wire.Read(a.format, data, wire.Options{Enough: true})
	if obj.IsTable() && whole {
		obj, whole = only(a.format, data)
	}
	unchanged := obj.Stored() && a.replaces == string(obj.ResourceVersion)
	var decoded runtime.Object
	if a.decode && end == "" && obj.Stored() {
		decoded = decode(a.Codecs, a.format, a.contentType, data, string(obj.Kind))
	}
	a.entry.Update(func(w *ledger.Write) {
		switch {
		case obj.Stored() || whole && end == "":
			judge(w, &obj)
			w.Object = decoded
			created := w.Verb == "create" && w.Subresource == "" || w.Status == http.StatusCreated
			w.Made = w.Effect == ledger.Gone || created || a.replaces != "" && !unchanged
		case len(data) == 0 && end == "":
			w.Unknown = "the answer is empty"
		case end != "":
			w.Unknown = "the answer was not read: " + end
		default:
			w.Unknown = "the answer is not an object, or not a whole one"
		}
		if w.UID == "" {
			w.UID = a.precondition
		}
		if w.Effect == ledger.Stored && unchanged {
			w.Effect = ledger.Unchanged
		}
	})
}

func only(f wire.Format, data []byte) (obj wire.Metadata, whole bool) {
	var rows []wire.Metadata
	wire.Read(f, data, wire.Options{Items: &rows})
	if len(rows) > 0 {
		obj = rows[len(rows)-1]
	}
	return obj, len(rows) == 1
}

func (a *answer) collects() bool { return a.entry.Request().Verb == "deletecollection" }

func (a *answer) collection(data []byte, end string) {
	var list []wire.Metadata
	obj, whole := wire.Read(a.format, data, wire.Options{Items: &list})
	var items []ledger.Write
	for _, item := range list {
		w := ledger.Write{
			Request: *a.entry.Request(), UID: types.UID(item.UID), Effect: ledger.Accepted,
			Unknown: "a deletecollection does not report whether an object is gone or only marked, nor its version",
		}
		w.Name = string(item.Name)
		if item.Namespace != nil {
			w.Namespace = string(item.Namespace)
		}
		items = append(items, w)
	}
	items = a.entry.Collected(items)
	a.entry.Update(func(w *ledger.Write) {
		switch {
		case obj.IsList() && whole:
			w.Effect, w.Unknown = "", ""
		case end != "":
			w.Unknown = "the answer was not read: " + end
		default:
			w.Unknown = "the answer does not list what was deleted"
		}
	})
	if a.term == nil {
		return
	}
	for i := range items {
		a.term.Wrote(&items[i])
	}
}

func inflate(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, answerLimit))
	if err == nil && len(plain) == answerLimit {
		err = errors.New("it has more than 1 MiB")
	}
	return plain, err
}
