// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/binary"
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
)

// form is a representation of objects that a client asked for in its Accept header.
type form struct {
	media   string                  // a content type; "" is JSON
	convert schema.GroupVersionKind // PartialObjectMetadata(List) or Table; empty: the object
	pretty  bool
	version string // of the kind; set by encode
}

// mediaTypes are the content types of an API server, in its order.
var mediaTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf}

const partialMetadata, partialMetadataList, asTable = "PartialObjectMetadata", "PartialObjectMetadataList", "Table"

func (f form) protobuf() bool { return f.media == runtime.ContentTypeProtobuf }

// partial reports whether the client asked for metadata only.
func (f form) partial() bool {
	return f.convert.Kind == partialMetadata || f.convert.Kind == partialMetadataList
}

// negotiate chooses the form of the answers to a request for t. The response is nil unless the
// server has no form that the client accepts.
func (r *Request) negotiate(t *table) (*http.Response, error) {
	r.table = t
	accept, builtin := r.Header.Get("Accept"), t.BuiltIn
	pretty := r.pretty()
	if accept == "" {
		r.form = form{pretty: pretty}
		return nil, nil //nolint:nilnil // JSON
	}
	clauses := goautoneg.ParseAccept(accept)
	for _, c := range clauses {
		for _, media := range mediaTypes {
			if kind, subtype, _ := strings.Cut(media, "/"); c.Type != "*" && c.Type != kind || c.SubType != "*" && c.SubType != subtype {
				continue
			}
			f := form{
				media: media, pretty: pretty || c.Params["pretty"] == "1",
				convert: schema.GroupVersionKind{Group: c.Params["g"], Version: c.Params["v"], Kind: c.Params["as"]},
			}
			if f.possible(builtin) && (c.Params["stream"] == "" || c.Params["stream"] == "watch" && media != runtime.ContentTypeYAML) {
				r.form = f
				return nil, nil //nolint:nilnil // this one
			}
		}
	}
	return r.notAcceptable(clauses, builtin)
}

func (f form) possible(builtin bool) bool {
	switch meta := f.convert.Group == metav1.GroupName && (f.convert.Version == "v1" || f.convert.Version == "v1beta1"); {
	case f.convert.Empty():
		return builtin || !f.protobuf()
	case f.convert.Kind == asTable:
		return meta && !f.protobuf()
	default:
		return meta && f.partial()
	}
}

func (r *Request) notAcceptable(clauses []goautoneg.Accept, builtin bool) (*http.Response, error) {
	known, plain := "", len(clauses) > 0
	for _, c := range clauses {
		for _, media := range append(mediaTypes, "*/*") {
			if c.Type+"/"+c.SubType == media && known == "" {
				known = media
			}
		}
		plain = plain && c.Params["as"] == ""
	}
	if plain && !builtin {
		r.form = form{media: known}
	}
	status := metav1.Status{Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable}
	status.Message = "only the following media types are accepted: " + strings.Join(mediaTypes, ", ")
	if builtin && known == "" { // the real server's router refuses it
		types := mediaTypes
		if r.Verb == "list" || r.Verb == "watch" {
			types = append(types, streamTypes...)
		}
		status.Message = "406: Not Acceptable\n\nAvailable representations: " + strings.Join(types, ", ")
		status.Details = &metav1.StatusDetails{}
	}
	return r.FailWith(status)
}

var streamTypes = []string{runtime.ContentTypeJSON + ";stream=watch", runtime.ContentTypeProtobuf + ";stream=watch"}

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
		if r.form.protobuf() {
			raw, err := b.Marshal()
			return r.respond(code, r.form.media, envelope(b.TypeMeta, raw)), err
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
	case r.form.media == runtime.ContentTypeYAML:
		text, err := yaml.JSONToYAML(data)
		return r.respond(code, runtime.ContentTypeYAML, text), err
	case r.form.pretty:
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
	switch r.form.convert.Kind {
	case asTable:
		return r.answerTable(code, []*unstructured.Unstructured{o}, map[string]any{"resourceVersion": o.GetResourceVersion()})
	case partialMetadataList:
		if !r.table.BuiltIn {
			return nil, errors.New("content is not a list") // the real server's words
		}
		return nil, notAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", r.table.goType(""))
	}
	data, err := r.table.encode(o, r.form, r.table.objects[keyOf(o)] == o)
	if err != nil {
		return r.Fail(http.StatusInternalServerError, err.Error())
	}
	if r.form.protobuf() {
		return r.respond(code, r.form.media, data), nil
	}
	return r.answerJSON(code, data)
}

// goType is the type that the real server names in errors.
func (t *table) goType(suffix string) string {
	if !t.BuiltIn {
		return "*unstructured.Unstructured" + suffix
	}
	group, _, _ := strings.Cut(t.Group, ".")
	if group == "" {
		group = "core"
	}
	return "*" + group + "." + t.Kind + suffix
}

func (r *Request) respond(code int, contentType string, data []byte) *http.Response {
	resp := r.stream(code, contentType, io.NopCloser(bytes.NewReader(data)))
	resp.ContentLength = int64(len(data))
	return resp
}

// encode returns an object in a form, as an object of its own: in protobuf it has an envelope. If
// keep is true the bytes are kept for the next client; o must be a current or recent object.
func (t *table) encode(o *unstructured.Unstructured, f form, keep bool) ([]byte, error) {
	f.pretty = false
	if f.media == runtime.ContentTypeYAML {
		f.media = ""
	}
	if f.media == "" {
		f.media = runtime.ContentTypeJSON
	}
	f.version = t.Version
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
			t.encodings[o] = map[form][]byte{}
		}
		t.encodings[o][f] = data
	}
	return data, err
}

func (t *table) encodeObject(o *unstructured.Unstructured, f form) ([]byte, error) {
	switch {
	case f.partial():
		return encodePartial(o, f)
	case f.protobuf():
		obj, err := kinds.Scheme().New(t.GV().WithKind(t.Kind))
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, obj); err != nil {
			return nil, fmt.Errorf("sim: %s %q cannot be encoded as protobuf: %w", t.Kind, o.GetName(), err)
		}
		raw, err := obj.(interface{ Marshal() ([]byte, error) }).Marshal()
		return envelope(metav1.TypeMeta{APIVersion: t.GV().String(), Kind: t.Kind}, raw), err
	case t.BuiltIn:
		// Kind and version come first, so that the items of a list can leave them out.
		rest := maps.Clone(o.Object)
		delete(rest, "kind")
		delete(rest, "apiVersion")
		data, err := jsonvalue.Encode(rest)
		if err != nil {
			return nil, err
		}
		return append([]byte(t.typePrefix()), data[1:]...), nil
	}
	return jsonvalue.Encode(o.Object)
}

// typePrefix begins the JSON of a built-in object.
func (t *table) typePrefix() string {
	return `{"kind":` + strconv.Quote(t.Kind) + `,"apiVersion":` + strconv.Quote(t.GV().String()) + `,`
}

func encodePartial(o *unstructured.Unstructured, f form) ([]byte, error) {
	version := f.convert.GroupVersion().String()
	if !f.protobuf() {
		return jsonvalue.Encode(map[string]any{"apiVersion": version, "kind": partialMetadata, "metadata": o.Object["metadata"]})
	}
	partial := &metav1.PartialObjectMetadata{}
	content := map[string]any{"metadata": o.Object["metadata"]}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, partial); err != nil {
		return nil, err
	}
	raw, err := partial.Marshal()
	return envelope(metav1.TypeMeta{APIVersion: version, Kind: partialMetadata}, raw), err
}

// envelope wraps a protobuf message like the real server: with its type.
func envelope(of metav1.TypeMeta, raw []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: of.APIVersion, Kind: of.Kind}, Raw: raw}
	data, err := unknown.Marshal()
	if err != nil {
		panic(err) // it is a struct of bytes
	}
	return append([]byte("k8s\x00"), data...)
}

func message(data []byte) ([]byte, error) {
	var unknown runtime.Unknown
	err := unknown.Unmarshal(data[len("k8s\x00"):])
	return unknown.Raw, err
}

// frame appends a watch event to b. data is an encoded object.
func (f form) frame(b *bytes.Buffer, kind string, data []byte) error {
	if !f.protobuf() {
		b.WriteString(`{"type":"` + kind + `","object":`)
		b.Write(data)
		b.WriteString("}\n")
		return nil
	}
	event, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: data}}).Marshal()
	if err != nil {
		return err
	}
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) //nolint:gosec // a frame is small
	b.Write(event)
	return nil
}
