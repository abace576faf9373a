// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/packed"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// followPacked is follow with packed objects.
func followPacked(t *testing.T, api *sim.Server) (f *follower, stop func()) {
	t.Helper()
	return followAs(t, api, &packed.Codec{Decoded: decodedMaps(), Intake: asRead{}})
}

// asRead stores ConfigMaps as they are.
type asRead struct{}

func (asRead) Intern(s string) string { return strings.Clone(s) }

func (asRead) Refuse(object.Object, error) {}

// readable returns the names and data of the objects that can be decoded. refused names the others,
// stored or not.
func (f *follower) readable() (good []string, refused []string) {
	for _, obj := range f.store.GetStore().List() {
		o := obj.(*packed.Object)
		m, err := o.Decode()
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s: %v", o.GetName(), err))
			continue
		}
		good = append(good, m.GetName()+"="+m.(*corev1.ConfigMap).Data["data"])
	}
	for name, err := range f.lw.Broken.All() {
		refused = append(refused, fmt.Sprintf("%s: %v", name.Name, err))
	}
	slices.Sort(good)
	return good, refused
}

// encoding builds the responses of an API server from bytes.
type encoding struct {
	object func(*corev1.ConfigMap) []byte
	list   func(items ...[]byte) []byte
	event  func(kind string, object []byte) []byte // object is as an item of a list
}

func encodings() map[string]encoding {
	return map[string]encoding{
		"JSON":     {jsonObject, jsonList, jsonEvent},
		"protobuf": {protobufObject, protobufList, protobufEvent},
	}
}

func jsonObject(m *corev1.ConfigMap) []byte {
	m = m.DeepCopy()
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return testkit.Must(json.Marshal(m))
}

func jsonList(items ...[]byte) []byte {
	return fmt.Appendf(nil, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[%s]}`, bytes.Join(items, []byte(",")))
}

func jsonEvent(kind string, object []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, object)
}

func protobufObject(m *corev1.ConfigMap) []byte { return testkit.Must(m.Marshal()) }

// field is a field of a protobuf message, or nothing.
func field(number protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), data)
}

func protobufList(items ...[]byte) []byte {
	return envelope("v1", "ConfigMapList", listMessage(items...))
}

func listMessage(items ...[]byte) []byte {
	message := field(1, field(2, []byte("100")))
	for _, item := range items {
		message = append(message, field(2, item)...)
	}
	return message
}

func envelope(apiVersion, kind string, message []byte) []byte {
	typeMeta := append(field(1, []byte(apiVersion)), field(2, []byte(kind))...)
	return append([]byte("k8s\x00"), append(field(1, typeMeta), field(2, message)...)...)
}

func protobufEvent(kind string, object []byte) []byte {
	return frame(append(field(1, []byte(kind)), field(2, field(1, envelope("v1", "ConfigMap", object)))...))
}

func frame(event []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// respond answers with bytes. If the stream stays open, it ends when the client closes it.
func respond(body []byte, open bool) (*http.Response, error) {
	b := io.NopCloser(bytes.NewReader(body))
	if open {
		reader, writer := io.Pipe()
		b = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), reader), writer}
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: b,
	}, nil
}

// server answers lists and watches. Without stream, it refuses to stream initial lists. A nil watch
// has no events.
type server struct {
	list, stream, watch []byte
	ends                bool // the watch ends after its bytes

	later atomic.Pointer[server] // answers instead

	lists, watches atomic.Int64
}

func (s *server) answer(r *sim.Request) (*http.Response, error) {
	if later := s.later.Load(); later != nil {
		s = later
	}
	switch {
	case r.Verb == "list":
		s.lists.Add(1)
		return respond(s.list, false)
	case r.Streaming() && s.stream == nil:
		return r.Fail(http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
	case r.Streaming():
		return respond(s.stream, true)
	default:
		s.watches.Add(1)
		return respond(s.watch, !s.ends)
	}
}

// versioned is a ConfigMap as the API server has it.
func versioned(name, version, data string) *corev1.ConfigMap {
	m := testkit.ConfigMap(name)
	m.UID, m.ResourceVersion, m.Data = "u-"+m.UID, version, map[string]string{"data": data}
	m.UID += "1"
	return m
}

func listEnds() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "100", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

// servers returns how an item may arrive between the objects a and z: in a list, a streamed list
// and a watch.
func (e encoding) servers(item []byte) map[string]*server {
	a, z := e.object(versioned("a", "11", "1")), e.object(versioned("z", "101", "1"))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	return map[string]*server{
		"list":   {list: e.list(a, item, z)},
		"stream": {stream: join(e.event("ADDED", a), e.event("ADDED", item), e.event("ADDED", z), e.event("BOOKMARK", e.object(listEnds())))},
		"watch":  {list: e.list(a), watch: join(e.event("ADDED", item), e.event("MODIFIED", item), e.event("ADDED", z))},
	}
}

// serve runs a packed informer against a server in a bubble.
func serve(t *testing.T, s *server, check func(t *testing.T, f *follower)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Intercept(onMaps(s.answer))
		f, stop := followPacked(t, api)
		defer stop()
		time.Sleep(10 * time.Second)
		check(t, f)
	})
}

// TestPacked_RefusedObjects: an object that its decoder refuses is named and left out. All others
// arrive, in each format, listed, streamed and watched.
func TestPacked_RefusedObjects(t *testing.T) {
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	metadata := field(1, field(1, []byte("bad")))
	cases := map[string]map[string]string{
		"JSON": {
			"null": "null", "a number": "7", "a string": `"x"`, "an array": "[]", "no metadata": "{}",
			"wrong type":   `{"metadata":{"name":"bad"},"data":7}`,
			"another kind": `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"bad"}}`,
			"a table":      `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"name":"bad"},"rows":[]}`,
			"wrong labels": `{"metadata":{"name":"bad","labels":7}}`,
			"deep in data": `{"metadata":{"name":"bad"},"data":` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`,
			"deep":         `{"metadata":{"name":"bad"},"x":` + deep + `}`,
			"NaN":          `{"metadata":{"name":"bad"},"x":NaN}`,
			"bad escape":   `{"metadata":{"name":"bad"},"x":"\q"}`,
			"newline":      "{\"metadata\":{\"name\":\"bad\"},\"x\":\"\n\"}",
		},
		"protobuf": {
			"no message":       "\xff\xff",
			"truncated field":  string(metadata) + "\x12\x05x",
			"wrong type":       string(metadata) + "\x12\x03\x0a\x09x",
			"varint for bytes": string(metadata) + "\x10\x01",
			"length of 2^60":   string(metadata) + "\x12\x80\x80\x80\x80\x80\x80\x80\x80\x10x",
			"a group":          string(metadata) + "\x13",
			"wrong metadata":   string(field(1, append(field(1, []byte("bad")), 0x58, 1))),
		},
	}
	// see TestPacked_NoEvent
	framed := []string{"deep", "NaN", "bad escape", "newline", "null", "a number", "a string", "an array"}
	for format, items := range cases {
		e := encodings()[format]
		for name, item := range items {
			for how, s := range e.servers([]byte(item)) {
				if how != "list" && slices.Contains(framed, name) {
					continue
				}
				t.Run(format+" "+name+" "+how, func(t *testing.T) {
					serve(t, s, func(t *testing.T, f *follower) {
						good, refused := f.readable()
						if fmt.Sprint(good) != "[a=1 z=1]" || len(refused) != 1 || strings.Contains(item, "bad") && !strings.HasPrefix(refused[0], "bad: ") {
							t.Errorf("got %v, refused %.300q", good, refused)
						}
						if phase, why, _ := f.reported(); phase != hook.Syncing || why != "" {
							t.Errorf("got %s, %.300s", phase, why)
						}
						if s.lists.Load() > 1 || s.watches.Load() > 1 {
							t.Errorf("%d lists, %d watches", s.lists.Load(), s.watches.Load())
						}
					})
				})
			}
		}
	}
}

// TestPacked_OddObjects (F1): an object that its decoder accepts arrives as it decodes it, in each
// way.
func TestPacked_OddObjects(t *testing.T) {
	big := versioned("odd", "12", strings.Repeat("x", 3<<20))
	const head = `{"kind":"ConfigMap","apiVersion":"v1",`
	cases := map[string]map[string]string{
		"JSON": {
			"3 MB":                string(jsonObject(big)),
			"duplicate data":      head + `"metadata":{"name":"odd","resourceVersion":"12"},"data":{"data":"1"},"data":{"data":"2"}}`,
			"duplicate metadata":  head + `"metadata":{"name":"other","resourceVersion":"12"},"metadata":{"name":"odd"}}`,
			"duplicate name":      head + `"metadata":{"name":"other","name":"odd","resourceVersion":"12"}}`,
			"duplicate label":     head + `"metadata":{"name":"odd","resourceVersion":"12","labels":{"a":"1","a":"2"}}}`,
			"invalid UTF-8":       head + `"metadata":{"name":"odd","resourceVersion":"12","labels":{"a":"` + "\xff" + `"}},"data":{"data":"` + "\xff" + `"}}`,
			"invalid UTF-8, name": head + `"metadata":{"name":"odd` + "\xff" + `","resourceVersion":"12"}}`,
			"escaped name":        head + `"metadata":{"name":"o\u0064d","resourceVersion":"12"},"data":{"d\u0061ta":"\u0031"}}`,
			"lone surrogate":      head + `"metadata":{"name":"odd","resourceVersion":"12"},"data":{"data":"\ud800"}}`,
			"unknown fields":      head + `"x":{"y":[1,2.5e3,null,{}]},"metadata":{"name":"odd","resourceVersion":"12","z":[[]]},"data":{"data":"1"}}`,
			"brackets in strings": head + `"x":"}]\"{[","metadata":{"name":"odd","resourceVersion":"12"},"data":{"data":"1\\"}}`,
			"metadata last":       `{"data":{"data":"1"},"metadata":{"resourceVersion":"12","managedFields":[],"name":"odd"},"apiVersion":"v1","kind":"ConfigMap"}`,
			"spaces":              " {\n\t\"metadata\" : { \"name\" : \"odd\" , \"managedFields\" : [ { } ] , \"resourceVersion\" : \"12\" } , \"kind\":\"ConfigMap\" , \"apiVersion\":\"v1\" }",
			"null metadata":       head + `"metadata":{"name":"odd","resourceVersion":"12","labels":null,"annotations":null,"ownerReferences":null,"deletionTimestamp":null}}`,
		},
		"protobuf": {
			"3 MB":             string(protobufObject(big)),
			"unknown fields":   string(protobufObject(versioned("odd", "12", "1"))) + string(field(99, []byte("x"))) + "\xf0\x06\x01",
			"invalid UTF-8":    string(protobufObject(versioned("odd", "12", "\xff"))),
			"metadata last":    string(field(2, append(field(1, []byte("data")), field(2, []byte("1"))...))) + string(field(1, append(field(1, []byte("odd")), field(6, []byte("12"))...))),
			"metadata twice":   string(field(1, append(field(1, []byte("other")), field(6, []byte("12"))...))) + string(field(1, field(1, []byte("odd")))),
			"name twice":       string(field(1, slices.Concat(field(1, []byte("other")), field(1, []byte("odd")), field(6, []byte("12"))))),
			"field between":    string(field(1, slices.Concat(field(1, []byte("odd")), field(6, []byte("12")), field(17, nil), field(99, nil), field(17, nil)))),
			"only managed":     string(field(1, slices.Concat(field(17, field(1, []byte("m"))), field(1, []byte("odd")), field(6, []byte("12"))))),
			"negative numbers": string(field(1, slices.Concat(field(1, []byte("odd")), field(6, []byte("12")), []byte("\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")))),
		},
	}
	for format, items := range cases {
		e := encodings()[format]
		for name, item := range items {
			want := &corev1.ConfigMap{}
			unmarshal := want.Unmarshal
			if format == "JSON" {
				unmarshal = func(data []byte) error { return json.Unmarshal(data, want) }
			}
			testkit.NoError(t, unmarshal([]byte(item)))
			for how, s := range e.servers([]byte(item)) {
				t.Run(format+" "+name+" "+how, func(t *testing.T) {
					serve(t, s, func(t *testing.T, f *follower) {
						good, refused := f.readable()
						if len(good) != 3 || len(refused) > 0 || good[1] != want.Name+"="+want.Data["data"] {
							t.Errorf("got %.300v, refused %.300v", good, refused)
						}
						for _, obj := range f.store.GetStore().List() {
							o := obj.(*packed.Object)
							if o.GetName() == want.Name && (o.GetResourceVersion() != want.ResourceVersion || !maps.Equal(o.GetLabels(), want.Labels) || o.GetGeneration() != want.Generation) {
								t.Errorf("got %q, %v, %d; want %+v", o.GetResourceVersion(), o.GetLabels(), o.GetGeneration(), want.ObjectMeta)
							}
						}
					})
				})
			}
		}
	}
}

// TestPacked_BadList: a list that cannot be read is reported, and requested again at a slow pace.
// The informer recovers as soon as the list is good.
func TestPacked_BadList(t *testing.T) {
	a := versioned("a", "11", "1")
	whole := map[string][]byte{
		"JSON": jsonList(jsonObject(a)), "protobuf": protobufList(protobufObject(a)),
	}
	encoded := append(append(protobufList(protobufObject(a)), field(3, []byte("gzip"))...), field(4, []byte("x"))...)
	cases := map[string][]byte{
		"empty":                          {},
		"a page of a proxy":              []byte("<html>"),
		"text":                           []byte("kubernetes"),
		"a number":                       []byte("7"),
		"a Status":                       []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`),
		"a Table":                        []byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"100"},"columnDefinitions":[],"rows":[]}`),
		"an object":                      jsonObject(a),
		"items are an object":            []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":{}}`),
		"items are open":                 []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"x"}}`),
		"no comma":                       []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"x"}}{}]}`),
		"no item":                        []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"x"}},,{}]}`),
		"wrong bracket":                  []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[{]}]}`),
		"wrong metadata":                 []byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":7,"items":[]}`),
		"another kind in JSON":           []byte(`{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"name":"secret"}}]}`),
		"another kind in JSON, at end":   []byte(`{"items":[{"metadata":{"name":"secret"}}],"metadata":{"resourceVersion":"100"},"apiVersion":"v1","kind":"SecretList"}`),
		"another group in JSON":          []byte(`{"kind":"ConfigMapList","apiVersion":"x/v1","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"name":"secret"}}]}`),
		"items twice":                    []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"x"}}],"items":[]}`),
		"another kind in protobuf":       envelope("v1", "SecretList", listMessage()),
		"another group in protobuf":      envelope("x/v1", "ConfigMapList", listMessage()),
		"an object in protobuf":          envelope("v1", "ConfigMap", protobufObject(a)),
		"an envelope of nothing":         []byte("k8s\x00"),
		"encoded content":                encoded,
		"an item of 2^60 bytes":          append(envelope("v1", "ConfigMapList", nil)[:len(envelope("v1", "ConfigMapList", nil))-2], "\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x12\x80\x80\x80\x80\x80\x80\x80\x80\x10x"...),
		"a length beyond 64 bits":        append([]byte("k8s\x00"), "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"...),
		"an item longer than its list":   envelope("v1", "ConfigMapList", []byte("\x12\x05x")),
		"a tag longer than its list":     append(envelope("v1", "ConfigMapList", []byte("\x92")), "\x01\x00"...),
		"a list with another field type": envelope("v1", "ConfigMapList", []byte("\x08\x01")),
		"wrong metadata in protobuf":     envelope("v1", "ConfigMapList", field(1, []byte("\xff"))),
		"CBOR":                           []byte("\xd9\xd9\xf7\xa0"),
	}
	for name, body := range whole {
		cases[name+", half"] = body[:len(body)/2]
		cases[name+", without its end"] = body[:len(body)-1]
		cases[name+", the first byte"] = body[:1]
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			s := &server{list: body}
			serve(t, s, func(t *testing.T, f *follower) {
				if phase, why, _ := f.reported(); phase != hook.Failing || !strings.Contains(why, "the list of ConfigMap: ") {
					t.Errorf("got %s, %q", phase, why)
				}
				if n := s.lists.Load(); n < 2 || n > 8 || f.store.HasSynced() || len(f.store.GetStore().ListKeys()) > 0 {
					t.Errorf("%d lists, synced: %t", n, f.store.HasSynced())
				}
				s.later.Store(&server{list: whole["protobuf"]})
				time.Sleep(4 * time.Second)
				if good, refused := f.readable(); fmt.Sprint(good) != "[a=1]" || len(refused) > 0 {
					t.Errorf("got %v, %v", good, refused)
				}
			})
		})
	}
}

// TestPacked_OddLists: lists whose fields are in another order, or unknown, are complete.
func TestPacked_OddLists(t *testing.T) {
	a := versioned("a", "11", "1")
	item := string(jsonObject(a))
	unknown := slices.Concat(field(9, []byte("x")), field(2, protobufObject(a)), field(7, nil), field(1, field(2, []byte("100"))))
	for name, body := range map[string]string{
		"items first":               `{"items":[` + item + `],"metadata":{"resourceVersion":"100"},"kind":"ConfigMapList","apiVersion":"v1"}`,
		"unknown fields":            `{"a":[{}],"kind":"ConfigMapList","apiVersion":"v1","b":null,"metadata":{"resourceVersion":"100","x":{}},"c":1e5,"items":[` + item + `],"d":"]"}`,
		"no kind":                   `{"metadata":{"resourceVersion":"100"},"items":[` + item + `]}`,
		"spaces":                    "\n { \"metadata\" : { \"resourceVersion\" : \"100\" } , \"items\" : [ \n" + item + " \t ] , \"kind\" : \"ConfigMapList\" } \n",
		"protobuf, items first":     string(envelope("v1", "ConfigMapList", append(field(2, protobufObject(a)), field(1, field(2, []byte("100")))...))),
		"protobuf, unknown fields":  string(envelope("v1", "ConfigMapList", unknown)) + string(field(77, []byte("x"))),
		"protobuf, type at the end": "k8s\x00" + string(field(2, unknown)) + string(field(1, field(2, []byte("ConfigMapList")))),
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, &server{list: []byte(body)}, func(t *testing.T, f *follower) {
				good, refused := f.readable()
				version, ok := f.lw.Listed()
				if fmt.Sprint(good) != "[a=1]" || len(refused) > 0 || version != "100" || !ok {
					t.Errorf("got %v, %v at %q", good, refused, version)
				}
			})
		})
	}
	for name, body := range map[string]string{
		"no items":    `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"100"}}`,
		"null items":  `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":null}`,
		"empty items": `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[ ]}`,
		"protobuf":    string(protobufList()),
	} {
		t.Run("empty "+name, func(t *testing.T) {
			serve(t, &server{list: []byte(body)}, func(t *testing.T, f *follower) {
				if version, ok := f.lw.Listed(); !f.store.HasSynced() || version != "100" || !ok {
					t.Errorf("synced: %t; version %q", f.store.HasSynced(), version)
				}
			})
		})
	}
}

// TestPacked_OrderOfItems: many items on several goroutines stay in order, so that the last of
// equal names counts, and none is lost.
func TestPacked_OrderOfItems(t *testing.T) {
	for name, e := range encodings() {
		t.Run(name, func(t *testing.T) {
			var items [][]byte
			for n := range 200 {
				items = append(items, e.object(versioned(fmt.Sprint("m", n%100), fmt.Sprint(n+1), strings.Repeat("x", 5000)+fmt.Sprint(n))))
			}
			serve(t, &server{list: e.list(items...)}, func(t *testing.T, f *follower) {
				good, refused := f.readable()
				if len(good) != 100 || len(refused) > 0 {
					t.Fatalf("%d objects, refused %v", len(good), refused)
				}
				for _, o := range good {
					name, data, _ := strings.Cut(o, "=")
					if "m"+strings.TrimLeft(data, "x") != strings.Replace(name, "m", "m1", 1) && "m"+strings.TrimLeft(data, "x") != strings.Replace(name, "m", "m10", 1) {
						t.Errorf("%s has %s", name, strings.TrimLeft(data, "x"))
					}
				}
			})
		})
	}
}

// TestPacked_NoEvent (S2): a frame that is no event ends its watch. The informer resumes, and lists
// again after three tries, with pauses that grow.
func TestPacked_NoEvent(t *testing.T) {
	a := versioned("a", "11", "1")
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	for name, body := range map[string][]byte{
		"text":                    []byte("oops"),
		"a page of a proxy":       []byte("<html>"),
		"a number":                []byte("7"),
		"an object":               jsonObject(a),
		"no object":               []byte(`{"type":"ADDED"}`),
		"no type":                 []byte(`{"object":{}}`),
		"null":                    []byte(`{"type":"ADDED","object":null}`),
		"two objects":             []byte(`{"type":"ADDED","object":{},"object":{}}`),
		"two types":               []byte(`{"type":"ADDED","type":"ADDED","object":{}}`),
		"a number for an object":  []byte(`{"type":"ADDED","object":7}`),
		"NaN":                     []byte(`{"type":"ADDED","object":{"metadata":{"name":"bad"},"x":NaN}}`),
		"deep":                    []byte(`{"type":"ADDED","object":{"metadata":{"name":"bad"},"x":` + deep + `}}`),
		"an empty frame":          frame(nil),
		"junk in a frame":         frame([]byte("\xff\xff\xff")),
		"no type in protobuf":     frame(field(2, field(1, envelope("v1", "ConfigMap", protobufObject(a))))),
		"no object in protobuf":   frame(field(1, []byte("ADDED"))),
		"a frame of 4 GB":         []byte("\x00\xff\xff\xffabcdef"),
		"CBOR":                    []byte("\xd9\xd9\xf7\xa0"),
		"ERROR without a Status":  []byte(`{"type":"ERROR","object":7}`),
		"ERROR of another kind":   jsonEvent("ERROR", jsonObject(a)),
		"ERROR in protobuf, junk": frame(append(field(1, []byte("ERROR")), field(2, field(1, []byte("junk")))...)),
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{list: protobufList(protobufObject(a)), watch: body, ends: true}
			serve(t, s, func(t *testing.T, f *follower) {
				time.Sleep(5 * time.Minute)
				lists, watches := s.lists.Load(), s.watches.Load() // and up to 30 comparisons
				if lists > 45 || watches > 320 || watches < 20 || fmt.Sprint(f.readable()) != "[a=1] []" {
					t.Errorf("%d lists and %d watches in 5 minutes; has %v", lists, watches, fmt.Sprint(f.readable()))
				}
				s.later.Store(&server{list: s.list, watch: protobufEvent("ADDED", protobufObject(versioned("z", "101", "1")))})
				time.Sleep(2 * time.Minute)
				if good, refused := f.readable(); fmt.Sprint(good) != "[a=1 z=1]" || len(refused) > 0 {
					t.Errorf("got %v, %v", good, refused)
				}
			})
		})
	}
}

// TestPacked_OddEvents: events in other layouts arrive, and bookmarks and errors in each format.
func TestPacked_OddEvents(t *testing.T) {
	z := versioned("z", "101", "1")
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old"}
	status := map[string][]byte{
		"JSON":     jsonEvent("ERROR", testkit.Must(json.Marshal(gone))),
		"protobuf": frame(append(field(1, []byte("ERROR")), field(2, field(1, envelope("v1", "Status", testkit.Must(gone.Marshal()))))...)),
	}
	for name, e := range encodings() {
		t.Run(name+" ERROR", func(t *testing.T) {
			s := &server{list: e.list(e.object(z)), watch: status[name]}
			serve(t, s, func(t *testing.T, f *follower) {
				if s.lists.Load() < 2 || s.watches.Load() > 3*s.lists.Load() || !f.has("z") {
					t.Errorf("%d lists, %d watches", s.lists.Load(), s.watches.Load())
				}
			})
		})
		t.Run(name+" BOOKMARK", func(t *testing.T) {
			mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "200"}}
			s := &server{list: e.list(e.object(z)), watch: e.event("BOOKMARK", e.object(mark))}
			serve(t, s, func(t *testing.T, f *follower) {
				testkit.Equal(t, f.store.GetStore().LastStoreSyncResourceVersion(), "200")
				testkit.Equal(t, s.lists.Load(), 1)
				testkit.Len(t, f.store.GetStore().ListKeys(), 1)
			})
		})
	}
	message := envelope("v1", "ConfigMap", protobufObject(z))
	for name, body := range map[string][]byte{
		"object first":        []byte(` {"object":` + string(jsonObject(z)) + `,"x":[1],"type":"ADDED"}`),
		"protobuf, unknown":   frame(slices.Concat(field(9, nil), field(2, append(field(1, message), field(5, nil)...)), field(1, []byte("ADDED")))),
		"envelope of no kind": frame(append(field(1, []byte("ADDED")), field(2, field(1, append([]byte("k8s\x00"), field(2, protobufObject(z))...)))...)),
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{list: protobufList(), watch: body}
			serve(t, s, func(t *testing.T, f *follower) {
				if good, refused := f.readable(); fmt.Sprint(good) != "[z=1]" || len(refused) > 0 || s.lists.Load() != 1 {
					t.Errorf("got %v, %v after %d lists", good, refused, s.lists.Load())
				}
			})
		})
	}
}

// TestPacked_RefusedEnvelopes: the object of an event is refused if its envelope is of another
// kind, encoded or broken. The next event arrives.
func TestPacked_RefusedEnvelopes(t *testing.T) {
	z := versioned("z", "101", "1")
	event := func(message []byte) []byte {
		return frame(append(field(1, []byte("ADDED")), field(2, field(1, message))...))
	}
	for name, body := range map[string][]byte{
		"another kind":  event(envelope("v1", "Secret", protobufObject(versioned("bad", "12", "1")))),
		"another group": event(envelope("x/v1", "ConfigMap", protobufObject(versioned("bad", "12", "1")))),
		"no magic":      event([]byte("junk")),
		"empty":         event([]byte("k8s\x00")),
		"encoded":       event(append(envelope("v1", "ConfigMap", protobufObject(versioned("bad", "12", "1"))), field(3, []byte("gzip"))...)),
		"truncated":     event(envelope("v1", "ConfigMap", protobufObject(versioned("bad", "12", "1")))[:40]),
	} {
		for how, s := range map[string]*server{
			"watch":  {list: protobufList(), watch: append(body, protobufEvent("ADDED", protobufObject(z))...)},
			"stream": {stream: slices.Concat(body, protobufEvent("ADDED", protobufObject(z)), protobufEvent("BOOKMARK", protobufObject(listEnds())))},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				serve(t, s, func(t *testing.T, f *follower) {
					if good, refused := f.readable(); fmt.Sprint(good) != "[z=1]" || len(refused) != 1 || s.lists.Load() > 1 {
						t.Errorf("got %v, %v after %d lists", good, refused, s.lists.Load())
					}
				})
			})
		}
	}
}

// TestPacked_RefusedDeletes (S2): the delete of an object arrives even if its last state cannot be
// packed.
func TestPacked_RefusedDeletes(t *testing.T) {
	a, b := versioned("a", "11", "1"), versioned("b", "12", "1")
	named := func(version string) []byte {
		return slices.Concat(field(1, []byte("a")), field(3, []byte("default")), field(5, []byte("u-1")), field(6, []byte(version)))
	}
	managed := field(17, field(7, field(1, []byte("no JSON"))))
	for name, object := range map[string][]byte{
		"a broken field":           append(field(1, named("101")), "\x12\x05x"...),
		"broken managed fields":    append(field(1, append(named("101"), managed...)), "\x12\x05x"...),
		"a broken field, unknown":  append(field(1, slices.Concat(field(1, []byte("x")), field(6, []byte("101")), managed)), "\x12\x05x"...),
		"nothing that can be read": []byte("\xff\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{
				list:  protobufList(protobufObject(a), protobufObject(b)),
				watch: append(protobufEvent("DELETED", object), protobufEvent("MODIFIED", protobufObject(versioned("b", "103", "2")))...),
			}
			want := "[a=1 b=2]"
			if strings.HasPrefix(name, "a broken field") || strings.HasPrefix(name, "broken managed") {
				want = "[b=2]"
			}
			if strings.HasSuffix(name, "unknown") {
				want = "[a=1 b=2]"
			}
			serve(t, s, func(t *testing.T, f *follower) {
				if good, _ := f.readable(); fmt.Sprint(good) != want || s.lists.Load() != 1 {
					t.Errorf("got %v after %d lists, want %s", good, s.lists.Load(), want)
				}
				testkit.Equal(t, f.store.GetStore().LastStoreSyncResourceVersion(), "103")
			})
		})
	}
}
