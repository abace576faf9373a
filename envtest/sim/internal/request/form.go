// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// Negotiate chooses the form of the answers to a request for t. It returns an error if the server
// has no form that the client accepts.
func (r *Request) Negotiate(t *store.Table) error {
	r.table = t
	accept, builtin := r.Header.Get("Accept"), t.BuiltIn
	pretty := r.pretty()
	if accept == "" {
		r.Form = wire.Form{Pretty: pretty}
		return nil
	}
	clauses := goautoneg.ParseAccept(accept)
	for _, c := range clauses {
		for _, media := range wire.MediaTypes {
			if kind, subtype, _ := strings.Cut(media, "/"); c.Type != "*" && c.Type != kind || c.SubType != "*" && c.SubType != subtype {
				continue
			}
			f := wire.Form{
				Media: media, Pretty: pretty || c.Params["pretty"] == "1",
				Convert: schema.GroupVersionKind{Group: c.Params["g"], Version: c.Params["v"], Kind: c.Params["as"]},
			}
			if f.Possible(builtin) && (c.Params["stream"] == "" || c.Params["stream"] == "watch" && media != runtime.ContentTypeYAML) {
				r.Form = f
				return nil
			}
		}
	}
	return r.notAcceptable(clauses, builtin)
}

func (r *Request) notAcceptable(clauses []goautoneg.Accept, builtin bool) error {
	known, plain := "", len(clauses) > 0
	for _, c := range clauses {
		for _, media := range append(wire.MediaTypes, "*/*") {
			if c.Type+"/"+c.SubType == media && known == "" {
				known = media
			}
		}
		plain = plain && c.Params["as"] == ""
	}
	if plain && !builtin {
		r.Form = wire.Form{Media: known}
	}
	if !builtin || known != "" {
		return NotAcceptable("only the following media types are accepted: %s", strings.Join(wire.MediaTypes, ", "))
	}
	types := wire.MediaTypes
	if r.Verb == "list" || r.Verb == "watch" {
		types = append(types, wire.StreamTypes...)
	}
	// The real server's router refuses it.
	err := NotAcceptable("406: Not Acceptable\n\nAvailable representations: %s", strings.Join(types, ", "))
	err.ErrStatus.Details = &metav1.StatusDetails{}
	return err
}

// pretty reports whether the client is an interactive tool or asked for readable JSON.
func (r *Request) pretty() bool {
	if p := r.Query.Get("pretty"); p != "" {
		yes, _ := strconv.ParseBool(p)
		return yes
	}
	agent := r.Header.Get("User-Agent")
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// Answer answers with an object, a Status or another JSON value.
func (r *Request) Answer(code int, body any) (*http.Response, error) {
	switch b := body.(type) {
	case *unstructured.Unstructured:
		return r.answerObject(code, b)
	case *metav1.Status:
		if r.Form.Protobuf() {
			raw, err := b.Marshal()
			return r.Respond(code, r.Form.Media, wire.Envelope(b.TypeMeta, raw)), err
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return r.AnswerJSON(code, data)
}

// AnswerJSON answers with JSON in the requested form.
func (r *Request) AnswerJSON(code int, data []byte) (*http.Response, error) {
	switch {
	case r.Form.Media == runtime.ContentTypeYAML:
		text, err := yaml.JSONToYAML(data)
		return r.Respond(code, runtime.ContentTypeYAML, text), err
	case r.Form.Pretty:
		var b bytes.Buffer
		err := json.Indent(&b, data, "", "  ")
		return r.Respond(code, runtime.ContentTypeJSON, b.Bytes()), err
	}
	return r.Respond(code, runtime.ContentTypeJSON, append(data[:len(data):len(data)], '\n')), nil
}

func (r *Request) answerObject(code int, o *unstructured.Unstructured) (*http.Response, error) {
	if r.table == nil || o.GetKind() != r.table.Kind { // a kind of its own, such as Scale
		data, err := jsonvalue.Encode(o.Object)
		if err != nil {
			return nil, err
		}
		return r.AnswerJSON(code, data)
	}
	switch r.Form.Convert.Kind {
	case wire.AsTable:
		return r.AnswerTable(code, []*unstructured.Unstructured{o}, map[string]any{"resourceVersion": o.GetResourceVersion()})
	case wire.PartialMetadataList:
		if !r.table.BuiltIn {
			return nil, errors.New("content is not a list") // the real server's words
		}
		return nil, NotAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", r.table.GoType(""))
	}
	data, err := r.table.Encode(o, r.Form, r.table.Objects[store.KeyOf(o)] == o)
	if err != nil {
		return r.Fail(http.StatusInternalServerError, err.Error())
	}
	if r.Form.Protobuf() {
		return r.Respond(code, r.Form.Media, data), nil
	}
	return r.AnswerJSON(code, data)
}

// Respond answers with data as it is.
func (r *Request) Respond(code int, contentType string, data []byte) *http.Response {
	resp := r.Stream(code, contentType, io.NopCloser(bytes.NewReader(data)))
	resp.ContentLength = int64(len(data))
	return resp
}
