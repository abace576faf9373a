// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

var cutFormats = map[string]wire.Format{"JSON": wire.JSON, "protobuf": wire.Protobuf}

// message is a generated protobuf type.
type message interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// bare returns an object as Compact takes it: protobuf without its envelope.
func bare(t testing.TB, f wire.Format, obj runtime.Object, gvk schema.GroupVersionKind) []byte {
	t.Helper()
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	var data []byte
	var err error
	if f == wire.JSON {
		data, err = json.Marshal(obj)
	} else {
		data, err = obj.(message).Marshal()
	}
	testkit.NoError(t, err)
	return data
}

// decode reads an object with the decoder that client-go uses.
func decode(f wire.Format, data []byte, into runtime.Object) error {
	if f == wire.JSON {
		return utiljson.Unmarshal(data, into)
	}
	return into.(message).Unmarshal(data)
}

// meta returns what Compact reads, from an object that a decoder has read.
func meta(obj metav1.Object) wire.Compacted {
	return wire.Compacted{
		Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: string(obj.GetUID()), ResourceVersion: obj.GetResourceVersion(),
		Generation: obj.GetGeneration(), Deleting: obj.GetDeletionTimestamp() != nil,
		Owners: len(obj.GetOwnerReferences()) > 0, Labels: len(obj.GetLabels()) > 0,
		Annotations: len(obj.GetAnnotations()) > 0, Finalizers: len(obj.GetFinalizers()) > 0,
	}
}

// checkMeta compares what Compact has read with what the decoder has.
func checkMeta(t testing.TB, c wire.Compacted, obj metav1.Object) {
	t.Helper()
	got, want := c, meta(obj)
	got.Data, got.MetaStart, got.MetaEnd, got.APIVersion, got.Kind = "", 0, 0, "", ""
	if got != want {
		t.Fatalf("read %+v, want %+v, in %q", got, want, c.Data)
	}
}

var fieldNames = []string{
	"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers", "managedFields",
}

// checkFields compares each field that Fields returns with the same field in an object.
func checkFields(t testing.TB, f wire.Format, c wire.Compacted, want *metav1.ObjectMeta) {
	t.Helper()
	all := reflect.TypeFor[metav1.ObjectMeta]()
	for i := range all.NumField() {
		name, _, _ := strings.Cut(all.Field(i).Tag.Get("json"), ",")
		if !slices.Contains(fieldNames, name) {
			t.Fatalf("ObjectMeta has a new field %s", name)
		}
		var got, only metav1.ObjectMeta
		data := wire.Fields(f, c.Data[c.MetaStart:c.MetaEnd], name)
		var err error
		if f == wire.JSON {
			err = utiljson.Unmarshal(data, &got)
		} else {
			err = got.Unmarshal(data)
		}
		reflect.ValueOf(&only).Elem().Field(i).Set(reflect.ValueOf(want).Elem().Field(i))
		if err != nil || !reflect.DeepEqual(got, only) {
			t.Fatalf("%s of %q is %q: %v %v, want %v", name, c.Data, data, got, err, only)
		}
	}
}

// filler makes random objects, the same for the same seed.
type filler struct {
	objects, metadata interface{ Fill(any) }
	random            *rand.Rand
}

func newFiller(seed int64) filler {
	return filler{
		objects:  fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs),
		metadata: fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs).NilChance(.2).NumElements(0, 4),
		random:   rand.New(rand.NewSource(seed)),
	}
}

func (f filler) fill(obj runtime.Object) {
	f.objects.Fill(obj)
	m := obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	f.metadata.Fill(m)
	for i := range m.ManagedFields {
		m.ManagedFields[i].FieldsV1 = metav1.NewFieldsV1(`{"f:a":"` + strings.Repeat("]}\\\"", f.random.Intn(50)) + `"}`)
	}
}

// kinds yields each kind of client-go that has an ObjectMeta.
func kinds(yield func(gvk schema.GroupVersionKind, empty func() message) bool) {
	all := scheme.Scheme.AllKnownTypes()
	for _, gvk := range slices.SortedFunc(func(yield func(schema.GroupVersionKind) bool) {
		for gvk := range all {
			if !yield(gvk) {
				return
			}
		}
	}, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		if _, ok := reflect.New(all[gvk]).Interface().(metav1.ObjectMetaAccessor); !ok {
			continue
		}
		if !yield(gvk, func() message { return reflect.New(all[gvk]).Interface().(message) }) {
			return
		}
	}
}

// The promise of Compact: a decoder reads the same object, without its managed fields.
func TestCompactEveryKind(t *testing.T) {
	count := 0
	for gvk, empty := range kinds {
		count++
		for seed := range int64(4) {
			obj := empty()
			newFiller(seed).fill(obj)
			for name, f := range cutFormats {
				data := bare(t, f, obj, gvk)
				for _, keep := range []bool{false, true} {
					c, err := wire.Compact(f, slices.Clone(data), keep)
					testkit.NoError(t, err, fmt.Sprintf("%s in %s, seed %d", gvk, name, seed), fmt.Sprintf("in %q", data))
					want, got := empty(), empty()
					testkit.NoError(t, decode(f, data, want))
					if !keep {
						want.SetManagedFields(nil)
					}
					if err := decode(f, []byte(c.Data), got); err != nil || !reflect.DeepEqual(got, want) {
						t.Fatalf("%s in %s, seed %d: %v\nis   %+v\nwant %+v", gvk, name, seed, err, got, want)
					}
					checkMeta(t, c, want)
					checkFields(t, f, c, want.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta))
					if v, k := gvk.ToAPIVersionAndKind(); f == wire.JSON && (c.APIVersion != v || c.Kind != k) {
						t.Fatalf("%s is a %s of %s", gvk, c.Kind, c.APIVersion)
					}
				}
			}
		}
	}
	t.Logf("%d kinds", count)
	testkit.AtLeast(t, count, 150, "kinds: the scheme is not what it was")
}

// As unstructured objects they are equal too.
func TestCompactUnstructured(t *testing.T) {
	for gvk, empty := range kinds {
		obj := empty()
		newFiller(7).fill(obj)
		data := bare(t, wire.JSON, obj, gvk)
		c, err := wire.Compact(wire.JSON, data, false)
		testkit.NoError(t, err, gvk)
		var got, want unstructured.Unstructured
		testkit.NoError(t, got.UnmarshalJSON([]byte(c.Data)))
		testkit.NoError(t, want.UnmarshalJSON(data))
		want.SetManagedFields(nil)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is %v, want %v", gvk, got, want)
		}
		checkMeta(t, c, &want)
	}
}

func TestCompactManagedFieldsAnywhere(t *testing.T) {
	for data, want := range map[string]string{
		`{"metadata":{"managedFields":[{"a":"}]"}]}}`:                                                   `{"metadata":{}}`,
		`{"metadata":{"name":null,"labels":null,"generation":null,"managedFields":[{}]},"kind":null}`:   `{"metadata":{"name":null,"labels":null,"generation":null},"kind":null}`,
		`{"metadata":{"managedFields":[],"name":"x"}}`:                                                  `{"metadata":{"name":"x"}}`,
		`{"metadata":{"name":"x","managedFields":null}}`:                                                `{"metadata":{"name":"x"}}`,
		`{"metadata":{"name":"x","managedFields":[{}],"uid":"u"}}`:                                      `{"metadata":{"name":"x","uid":"u"}}`,
		` {"metadata" : { "managedFields" : [ { } ] , "name":"x" } , "z":{"managedFields":[]} }` + "\n": `{"metadata" : { "name":"x" } , "z":{"managedFields":[]} }`,
		`{"a":1,"metadata":{"name":"x" , "managedFields" : [] }}`:                                       `{"a":1,"metadata":{"name":"x" }}`,
		`{"metadata":{"\u006danagedFields":[{}],"n\u0061me":"\u0078"}}`:                                 `{"metadata":{"n\u0061me":"\u0078"}}`,
	} {
		c, err := wire.Compact(wire.JSON, []byte(data), false)
		testkit.Equal(t, strings.ReplaceAll(c.Data, "{ ", "{"), strings.ReplaceAll(want, "{ ", "{"), data)
		testkit.Equal(t, err, nil, data)
		if err == nil && !json.Valid([]byte(c.Data[c.MetaStart:c.MetaEnd])) {
			t.Errorf("%s has metadata %s", data, c.Data[c.MetaStart:c.MetaEnd])
		}
		if strings.Contains(data, `"x"`) && c.Name != "x" {
			t.Errorf("%s has the name %q", data, c.Name)
		}
	}
}

// Data is the only allocation, and does not alias the input.
func TestCompactCopies(t *testing.T) {
	for name, f := range cutFormats {
		data := bare(t, f, pod(), corev1.SchemeGroupVersion.WithKind("Pod"))
		c, err := wire.Compact(f, data, false)
		testkit.NoError(t, err)
		before := fmt.Sprintf("%+v", c)
		clear(data)
		testkit.Equal(t, fmt.Sprintf("%+v", c), before, name, "the result changes with the input")
		copied := []byte(c.Data)
		if n := testing.AllocsPerRun(100, func() {
			testkit.NoError(t, testkit.Err(wire.Compact(f, copied, false)))
		}); n != 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestCompactBadJSON(t *testing.T) {
	for _, data := range []string{
		``, ` `, `null`, `[]`, `1`, `"metadata"`, `{`, `{}`, `{"metadata":null}`, `{"metadata":[]}`, `{"metadata":"x"}`, `{"metadata":{}`, `{"metadata":{},}`,
		`{"metadata":{}}{}`, `{"metadata":{}} x`, `{"metadata":{}}` + "\x00", `{"metadata":{},"metadata":{}}`, `{"metadata":{},"kind":"a","kind":"a"}`,
		`{"metadata":{},"apiVersion":"a","apiVersion":"a"}`, `{"metadata":{},"Kind":"a"}`, `{"metadata":{},"APIVersion":"a"}`, `{"metadata":{},"kind":1}`,
		`{"metadata":{"name":"a","name":"a"}}`, `{"metadata":{"name":"a","n\u0061me":"a"}}`, `{"metadata":{"labels":{},"labels":{}}}`,
		`{"metadata":{"managedFields":[],"managedFields":[]}}`, `{"metadata":{"name":1}}`, `{"metadata":{"name":["x"]}}`, `{"metadata":{"generateName":1}}`, `{"metadata":{"selfLink":1}}`, `{"metadata":{"uid":{}}}`,
		`{"metadata":{"name":"` + "\xff" + `"}}`, `{"metadata":{"generation":"1"}}`, `{"metadata":{"generation":1.0}}`, `{"metadata":{"generation":1e3}}`,
		`{"metadata":{"generation":9223372036854775808}}`, `{"metadata":{"generation":NaN}}`, `{"metadata":{"deletionTimestamp":"now"}}`,
		`{"metadata":{"deletionTimestamp":1}}`, `{"metadata":{"deletionTimestamp":"0001-01-01T00:00:00Z"}}`, `{"metadata":{"labels":[]}}`,
		`{"metadata":{"labels":{"a":1}}}`, `{"metadata":{"annotations":"x"}}`, `{"metadata":{"ownerReferences":{}}}`, `{"metadata":{"ownerReferences":["x"]}}`,
		`{"metadata":{"finalizers":[null]}}`, `{"metadata":{"finalizers":"x"}}`, `{"metadata":{"managedFields":{}}}`, `{"metadata":{"managedFields":[1]}}`,
		`{"metadata":{},"x":NaN}`, `{"metadata":{},"x":Infinity}`, `{"metadata":{},"x":01}`, `{"metadata":{},"x":+1}`, `{"metadata":{},"x":1.}`, `{"metadata":{},"x":.1}`,
		`{"metadata":{},"x":-}`, `{"metadata":{},"x":1e}`, `{"metadata":{},"x":1e+}`, `{"metadata":{},"x":tru}`, `{"metadata":{},"x":truee}`, `{"metadata":{},"x":nul}`,
		`{"metadata":{},"x":}`, `{"metadata":{},"x" 1}`, `{"metadata":{},x:1}`, `{"metadata":{},"x":[1,]}`, `{"metadata":{},"x":[1 2]}`, `{"metadata":{},"x":[1}}`,
		`{"metadata":{},"x":"` + "\n" + `"}`, `{"metadata":{},"x":"\x"}`, `{"metadata":{},"x":"\u12g4"}`, `{"metadata":{},"x":"\u12"}`, `{"metadata":{},"x":"\u12`, `{"metadata":{},"x":"\`, `{"metadata":{},"x":"`,
	} {
		if c, err := wire.Compact(wire.JSON, slices.Clip([]byte(data)), false); err == nil || c != (wire.Compacted{}) {
			t.Errorf("%q is %+v", data, c)
		}
	}
}

// The nesting is limited as in the decoder.
func TestCompactDeepJSON(t *testing.T) {
	for _, around := range []string{`{"metadata":{},"x":%s}`, `{"metadata":{"managedFields":[{"x":%s}]}}`, `{"metadata":{"x":%s}}`} {
		for _, depth := range []int{9_996, 9_997, 9_998, 9_999, 10_000, 10_001, 100_000} {
			data := fmt.Sprintf(around, strings.Repeat("[", depth)+strings.Repeat("]", depth))
			var into map[string]any
			refused := utiljson.Unmarshal([]byte(data), &into)
			err := testkit.Err(wire.Compact(wire.JSON, []byte(data), false))
			testkit.Equal(t, err == nil, refused == nil, fmt.Sprintf("%s, nested %d deep: %v", around, depth, err))
		}
		testkit.NotEqual(t, testkit.Err(wire.Compact(wire.JSON, []byte(fmt.Sprintf(around, strings.Repeat("[", 1_000_000))), false)), nil, "no end, but no error")
	}
}

func TestCompactBadProtobuf(t *testing.T) {
	for _, data := range []string{
		"", "\x0a", "\x0a\x01", "\x0a\x02\x0a", "\x12\x00", "\x12\x00\x0a\x00", "\x0a\x00\x0a\x00", "\x08\x00", "\x0b\x0c", "\x0a\x00\x13\x14", "\x0a\x00\x14", "\x0a\x00\x16", "\x0a\x00\x02",
		"\x0a\x00\x12\x05x", "\x0a\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x0a\x02\x08\x01", "\x0a\x02\x3a\x00", "\x0a\x06\x0a\x01x\x0a\x01x", "\x0a\x04\x38\x01\x38\x01", "\x0a\x04\x42\x00\x42\x00", "\x0a\x02\x0b\x0c", "\x0a\x04\x93\x01\x94\x01", "\x0a\x03\x0a\x05x",
		"\x0a\x08\x8a\x01\x00\x0a\x00\x8a\x01\x00", "\x0a\x03\x88\x01\x00", "k8s\x00",
	} {
		if c, err := wire.Compact(wire.Protobuf, []byte(data), false); err == nil || c != (wire.Compacted{}) {
			t.Errorf("%q is %+v", data, c)
		}
	}
	testkit.NotEqual(t, testkit.Err(wire.Compact(wire.Unknown, []byte("\xa0"), false)), nil, "an unknown format is compacted")
}

// A beginning is refused, or is an object for the decoder as well.
func TestCompactTruncated(t *testing.T) {
	for name, f := range cutFormats {
		data := bare(t, f, pod(), corev1.SchemeGroupVersion.WithKind("Pod"))
		for n := range data {
			c, err := wire.Compact(f, data[:n:n], false)
			if err != nil {
				continue
			}
			var want, got corev1.Pod
			testkit.NoError(t, decode(f, data[:n], &want), name, n)
			testkit.NotEqual(t, f, wire.JSON, name, n)
			want.ManagedFields = nil
			testkit.NoError(t, decode(f, []byte(c.Data), &got), name, n)
			testkit.DeepEqual(t, got, want, name, n)
		}
	}
}

func TestCompactLarge(t *testing.T) {
	large := &corev1.ConfigMap{ObjectMeta: pod().ObjectMeta, Data: map[string]string{"x": strings.Repeat("é\n<", 1<<20)}}
	for name, f := range cutFormats {
		data := bare(t, f, large, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		c, err := wire.Compact(f, data, false)
		var got corev1.ConfigMap
		if err != nil || decode(f, []byte(c.Data), &got) != nil || got.Data["x"] != large.Data["x"] || got.ManagedFields != nil {
			t.Errorf("%s of %d bytes: %v", name, len(data), err)
		}
	}
}

func TestUnwrapAndEvent(t *testing.T) {
	v1 := corev1.SchemeGroupVersion
	inner := encode(t, wire.Protobuf, pod(), v1)
	if version, kind, raw, err := wire.Unwrap(inner); version != "v1" || kind != "Pod" || !bytes.Equal(raw, bare(t, wire.Protobuf, pod(), v1.WithKind("Pod"))) || err != nil {
		t.Errorf("%s %s %q %v", version, kind, raw, err)
	}
	frame, _ := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: inner}}).Marshal()
	if typ, object, err := wire.Event(wire.Protobuf, frame); typ != "ADDED" || !bytes.Equal(object, inner) || err != nil {
		t.Errorf("%s %q %v", typ, object, err)
	}
	if typ, object, err := wire.Event(wire.JSON, []byte(` {"type":"MODIFIED","object": {"a":[1]} }`+"\n")); typ != "MODIFIED" || string(object) != `{"a":[1]}` || err != nil {
		t.Errorf("%s %s %v", typ, object, err)
	}
	for n := range frame {
		if typ, object, err := wire.Event(wire.Protobuf, frame[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are an event: %s %q", n, len(frame), typ, object)
		}
	}
	for _, data := range []string{
		``, `null`, `[]`, `{}`, `{"type":"ADDED"}`, `{"object":{}}`, `{"type":1,"object":{}}`, `{"type":"A","object":null}`, `{"type":"A","object":[]}`, `{"type":"A","type":"B","object":{}}`,
		`{"type":"A","object":{},"object":{}}`, `{"type":"A","object":{}} {}`, `{"type":"A","object":{"x":NaN}}`, `{"type":"A","object":{}`, `{"type":"A","object":{"x"`, `{"type":"` + "\xff" + `","object":{}}`,
	} {
		typ, object, err := wire.Event(wire.JSON, []byte(data))
		testkit.NotEqual(t, err, nil, fmt.Sprintf("%s is an event", data), fmt.Sprintf("%s %s", typ, object))
	}
	for _, data := range []string{
		"", "k8s", "k8s\x00", "k8s\x01\x12\x00", "k8s\x00\x1a\x01x", "k8s\x00\x22\x01x", "k8s\x00\x0a", "k8s\x00\x0a\x02\x0a", "k8s\x00\x12\x05x", "k8s\x00\x12\x00\x12\x00", "k8s\x00\x0a\x00\x0a\x00", "k8s\x00\x10\x01", "k8s\x00\x13\x14", "k8s\x00\x2b\x2c",
	} {
		_, _, raw, err := wire.Unwrap([]byte(data))
		testkit.NotEqual(t, err, nil, fmt.Sprintf("%q is an envelope of %q", data, raw))
	}
	_, _, err := wire.Event(wire.Unknown, []byte("\xa0"))
	testkit.NotEqual(t, err, nil, "an unknown format is an event")
	for name, bad := range map[string]string{
		"a Pod":               string(inner),
		"a group":             "\x0a\x01A\x12\x03\x0a\x01x\x2b\x2c",
		"two types":           "\x0a\x01A\x0a\x01B\x12\x03\x0a\x01x",
		"no type":             "\x12\x03\x0a\x01x",
		"no object":           "\x0a\x01A\x12\x00",
		"an object in no raw": "\x0a\x01A\x12\x02\x0a\x00",
	} {
		typ, object, err := wire.Event(wire.Protobuf, []byte(bad))
		testkit.NotEqual(t, err, nil, fmt.Sprintf("%s is an event", name), fmt.Sprintf("%s %q", typ, object))
	}
	if typ, object, err := wire.Event(wire.JSON, []byte(`{"kind":"WatchEvent","type":"A","object":{}}`)); typ != "A" || string(object) != "{}" || err != nil {
		t.Errorf("%s %s %v", typ, object, err)
	}
}

// bigPod is a usual Pod with managed fields: 5.2 KB of JSON, 3.3 KB of protobuf.
func bigPod() *corev1.Pod {
	p := pod()
	p.Name, p.Namespace, p.UID, p.ResourceVersion = "web-7d4b9c6f5d-x2x7k", "production", "0f3a1f5e-7f0e-4d5c-9f0b-2f3c4d5e6f70", "123456789"
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = nil, nil, nil
	p.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production", "pod-template-hash": "7d4b9c6f5d"}
	p.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z"}
	no, probe := false, &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10, FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz"}}}
	for _, name := range []string{"web", "sidecar"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3", ImagePullPolicy: corev1.PullIfNotPresent, LivenessProbe: probe, ReadinessProbe: probe,
			Ports:           []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Env:             []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no}, VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config"}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Image: "registry.example.com/team/" + name + ":v1.2.3", ContainerID: "containerd://" + strings.Repeat("0123456789abcdef", 4),
			ImageID: "registry.example.com/team/" + name + "@sha256:" + strings.Repeat("0123456789abcdef", 4), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: p.CreationTimestamp}},
		})
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: p.CreationTimestamp})
	}
	p.Status.HostIP, p.Status.PodIP, p.Status.StartTime = "10.0.0.1", "10.1.2.3", &p.CreationTimestamp
	p.ManagedFields = nil
	for _, manager := range []string{"kube-controller-manager", "kubelet"} {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &p.CreationTimestamp, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:containers":{` + strings.Repeat(`"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{}},`, 12) + `"f:x":{}}}}`),
		})
	}
	return p
}

// BenchmarkCompact prints the cost of Compact, of the decoder of the same bytes, and the ratio.
func BenchmarkCompact(b *testing.B) {
	for name, f := range cutFormats {
		data := bare(b, f, bigPod(), corev1.SchemeGroupVersion.WithKind("Pod"))
		b.Run(name, func(b *testing.B) {
			var compact, decoder time.Duration
			for b.Loop() { // in turns, so that both suffer from the same noise
				start := time.Now()
				for range 10 {
					if _, err := wire.Compact(f, data, false); err != nil {
						b.Fatal(err)
					}
				}
				middle := time.Now()
				for range 10 {
					if err := decode(f, data, &corev1.Pod{}); err != nil {
						b.Fatal(err)
					}
				}
				compact, decoder = compact+middle.Sub(start), decoder+time.Since(middle)
			}
			b.ReportMetric(0, "ns/op") // the sum of both
			b.ReportMetric(float64(compact.Nanoseconds())/float64(10*b.N), "compact-ns")
			b.ReportMetric(float64(decoder.Nanoseconds())/float64(10*b.N), "decode-ns")
			b.ReportMetric(float64(compact)/float64(decoder), "ratio")
			b.ReportMetric(float64(len(data)), "input-B")
		})
		for what, work := range map[string]func() error{
			"compact": func() error { _, err := wire.Compact(f, data, false); return err },
			"decode":  func() error { return decode(f, data, &corev1.Pod{}) },
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := work(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
