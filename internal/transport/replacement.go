// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/wire"
	"github.com/setpoint-dev/setpoint/ledger"
)

// replacement is what an update or a patch replaces.
type replacement struct {
	version string          // the only one, or "" for any
	content *ledger.Content // of the request, or nil if the ledger does not need it
}

// read reads the request of an update or a patch, once.
func (e *exchange) read(req *http.Request) {
	if e.replaces == nil {
		e.replaces = e.replaced(req)
	}
}

// replaced reads the request of an update or a patch. The API server ignores version "0".
func (e *exchange) replaced(req *http.Request) (r *replacement) {
	r = &replacement{}
	w := e.entry.Request()
	if w.Verb != "update" && w.Verb != "patch" {
		return r
	}
	contentType := req.Header.Get("Content-Type")
	e.buffers.sent(req.GetBody, func(body []byte) {
		var leaves wire.Leaves
		readable := false
		format, operations := wire.FormatOf(contentType), strings.HasPrefix(contentType, string(types.JSONPatchType))
		if operations {
			leaves, r.version, readable = wire.LeavesOfJSONPatch(body)
		} else if obj, _ := wire.Read(format, body, wire.Options{Enough: true}); obj.Metadata {
			r.version = string(obj.ResourceVersion)
		}
		if r.version == "0" {
			r.version = ""
		}
		if !answersObject(w) || r.version != "" && !e.ledger.Origin().Prove {
			return
		}
		if !operations {
			leaves, readable = e.leavesOf(format, contentType, body)
		}
		if readable {
			r.content = &ledger.Content{Request: leaves.Values, Shape: leaves.Shape}
		}
	})
	return r
}

// identify records what the request knows of the object, for want of an answer.
func (e *exchange) identify(req *http.Request) {
	var name, replaces string
	switch e.entry.Request().Verb {
	case "create":
		e.buffers.sent(req.GetBody, func(body []byte) {
			o, _ := wire.Read(wire.FormatOf(req.Header.Get("Content-Type")), body, wire.Options{Enough: true})
			name = string(o.Name)
		})
	case "update", "patch":
		e.read(req)
		replaces = e.replaces.version
	}
	e.entry.Update(func(w *ledger.Write) {
		w.Name, w.Replaces = cmp.Or(w.Name, name), replaces
	})
}

// leavesOf decodes an object unless it is JSON.
func (o *Options) leavesOf(format wire.Format, contentType string, data []byte) (wire.Leaves, bool) {
	if format != wire.JSON {
		obj := decode(o.Codecs, format, contentType, data, "", isObject)
		if obj == nil {
			return wire.Leaves{}, false
		}
		var err error
		if data, err = json.Marshal(obj); err != nil {
			return wire.Leaves{}, false
		}
	}
	return wire.LeavesOf(data)
}

// contentOf returns what the ledger needs to compare the answer with others, or nil. Metadata alone
// does not show whether the rest has changed.
func (a *answer) contentOf(data []byte, kind string) *ledger.Content {
	c := a.replaces.content
	if c == nil || kind == "PartialObjectMetadata" || kind == "Table" {
		return nil
	}
	leaves, ok := a.leavesOf(a.format, a.contentType, data)
	if !ok {
		return nil
	}
	return &ledger.Content{Object: leaves.Values, Request: c.Request, Shape: c.Shape}
}
