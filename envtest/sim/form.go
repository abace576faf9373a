// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/wire"
)

// negotiate chooses the form of the answers to a request for t. The response is nil unless the
// server has no form that the client accepts.
func (r *Request) negotiate(t *table) (*http.Response, error) {
	r.table = t
	accept, builtin := r.Header.Get("Accept"), t.BuiltIn
	pretty := r.pretty()
	if accept == "" {
		r.form = wire.Form{Pretty: pretty}
		return nil, nil //nolint:nilnil // JSON
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
				r.form = f
				return nil, nil //nolint:nilnil // this one
			}
		}
	}
	return r.notAcceptable(clauses, builtin)
}

func (r *Request) notAcceptable(clauses []goautoneg.Accept, builtin bool) (*http.Response, error) {
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
		r.form = wire.Form{Media: known}
	}
	status := metav1.Status{Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable}
	status.Message = "only the following media types are accepted: " + strings.Join(wire.MediaTypes, ", ")
	if builtin && known == "" { // the real server's router refuses it
		types := wire.MediaTypes
		if r.Verb == "list" || r.Verb == "watch" {
			types = append(types, wire.StreamTypes...)
		}
		status.Message = "406: Not Acceptable\n\nAvailable representations: " + strings.Join(types, ", ")
		status.Details = &metav1.StatusDetails{}
	}
	return r.FailWith(status)
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

func (r *Request) answer(code int, body any) (*http.Response, error) {
	switch b := body.(type) {
	case *unstructured.Unstructured:
		return r.answerObject(code, b)
	case *metav1.Status:
		if r.form.Protobuf() {
			raw, err := b.Marshal()
			return r.respond(code, r.form.Media, wire.Envelope(b.TypeMeta, raw)), err
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return r.answerJSON(code, data)
}

func (r *Request) answerJSON(code int, data []byte) (*http.Response, error) {
	switch {
	case r.form.Media == runtime.ContentTypeYAML:
		text, err := yaml.JSONToYAML(data)
		return r.respond(code, runtime.ContentTypeYAML, text), err
	case r.form.Pretty:
		var b bytes.Buffer
		err := json.Indent(&b, data, "", "  ")
		return r.respond(code, runtime.ContentTypeJSON, b.Bytes()), err
	}
	return r.respond(code, runtime.ContentTypeJSON, append(data[:len(data):len(data)], '\n')), nil
}

func (r *Request) answerObject(code int, o *unstructured.Unstructured) (*http.Response, error) {
	if r.table == nil || o.GetKind() != r.table.Kind { // a kind of its own, such as Scale
		data, err := jsonvalue.Encode(o.Object)
		if err != nil {
			return nil, err
		}
		return r.answerJSON(code, data)
	}
	switch r.form.Convert.Kind {
	case wire.AsTable:
		return r.answerTable(code, []*unstructured.Unstructured{o}, map[string]any{"resourceVersion": o.GetResourceVersion()})
	case wire.PartialMetadataList:
		if !r.table.BuiltIn {
			return nil, errors.New("content is not a list") // the real server's words
		}
		return nil, notAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", r.table.GoType(""))
	}
	data, err := r.table.encode(o, r.form, r.table.objects[keyOf(o)] == o)
	if err != nil {
		return r.Fail(http.StatusInternalServerError, err.Error())
	}
	if r.form.Protobuf() {
		return r.respond(code, r.form.Media, data), nil
	}
	return r.answerJSON(code, data)
}

func (r *Request) respond(code int, contentType string, data []byte) *http.Response {
	resp := r.stream(code, contentType, io.NopCloser(bytes.NewReader(data)))
	resp.ContentLength = int64(len(data))
	return resp
}

// encode returns an object in a form, as an object of its own: in protobuf it has an envelope. If
// keep is true the bytes are kept for the next client; o must be a current or recent object.
func (t *table) encode(o *unstructured.Unstructured, f wire.Form, keep bool) ([]byte, error) {
	f.Pretty = false
	if f.Media == runtime.ContentTypeYAML {
		f.Media = ""
	}
	if f.Media == "" {
		f.Media = runtime.ContentTypeJSON
	}
	f.Version = t.Version
	if data := t.encodings[o][f]; data != nil {
		return data, nil
	}
	shown, err := t.present(o)
	if err != nil {
		return nil, err
	}
	data, err := t.encodeObject(shown, f)
	if keep && err == nil {
		if t.encodings[o] == nil {
			t.encodings[o] = map[wire.Form][]byte{}
		}
		t.encodings[o][f] = data
	}
	return data, err
}

func (t *table) encodeObject(o *unstructured.Unstructured, f wire.Form) ([]byte, error) {
	switch {
	case f.Partial():
		return wire.EncodePartial(o, f)
	case f.Protobuf():
		obj, err := kinds.Scheme().New(t.GV().WithKind(t.Kind))
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, obj); err != nil {
			return nil, fmt.Errorf("sim: %s %q cannot be encoded as protobuf: %w", t.Kind, o.GetName(), err)
		}
		raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
		return wire.Envelope(metav1.TypeMeta{APIVersion: t.GV().String(), Kind: t.Kind}, raw), err
	case t.BuiltIn:
		// Kind and version come first, so that the items of a list can leave them out.
		rest := maps.Clone(o.Object)
		delete(rest, "kind")
		delete(rest, "apiVersion")
		data, err := jsonvalue.Encode(rest)
		if err != nil {
			return nil, err
		}
		return append([]byte(t.TypePrefix()), data[1:]...), nil
	}
	return jsonvalue.Encode(o.Object)
}
