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

// replaced returns the only version that an update or a patch replaces, or "" for any. The API
// server ignores version "0".
func (e *exchange) replaced(req *http.Request) (version string) {
	if w := e.entry.Request(); w.Verb != "update" && w.Verb != "patch" {
		return ""
	}
	contentType := req.Header.Get("Content-Type")
	e.buffers.sent(req.GetBody, func(body []byte) {
		if strings.HasPrefix(contentType, string(types.JSONPatchType)) {
			version = lockedVersion(body)
		} else if obj, _ := wire.Read(wire.FormatOf(contentType), body, wire.Options{Enough: true}); obj.Metadata {
			version = string(obj.ResourceVersion)
		}
	})
	if version == "0" {
		return ""
	}
	return version
}

// lockedVersion returns the resourceVersion that a JSON patch demands, or "". A test demands one of
// what is stored, unless the patch has changed the version itself.
func lockedVersion(patch []byte) (version string) {
	var operations []struct {
		Op, Path string
		Value    any
	}
	if json.Unmarshal(patch, &operations) != nil {
		return ""
	}
	changed := false
	for _, o := range operations {
		is := o.Path == "/metadata/resourceVersion"
		switch {
		case is && (o.Op == "add" || o.Op == "replace" || o.Op == "test" && !changed):
			version, _ = o.Value.(string)
		case is && o.Op == "remove" && changed:
			version = ""
		}
		changed = changed || is && o.Op != "test"
	}
	return version
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
		replaces = e.replaced(req)
	}
	e.entry.Update(func(w *ledger.Write) {
		w.Name, w.Replaces = cmp.Or(w.Name, name), replaces
	})
}
