// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestLedgerDecodesWhatIsWanted: only the resources that the origin wants, in each format of the
// API server.
func TestLedgerDecodesWhatIsWanted(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "shop"}}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta}
	partial := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: meta}
	binary := func(obj runtime.Object) string {
		var out bytes.Buffer
		testkit.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &out))
		return out.String()
	}
	const labelled = `"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"7","labels":{"app":"shop"}}}`
	for name, test := range map[string]struct {
		path, contentType, body string
		want                    bool
	}{
		"JSON":                       {pods, "application/json", `{"apiVersion":"v1","kind":"Pod",` + labelled, true},
		"protobuf":                   {pods, runtime.ContentTypeProtobuf, binary(pod), true},
		"custom":                     {"/apis/shop.example.com/v1/namespaces/ns/carts", "application/json", `{"apiVersion":"shop.example.com/v1","kind":"Cart",` + labelled, true},
		"metadata":                   {pods, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",` + labelled, true},
		"metadata as protobuf":       {pods, runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", binary(partial), true},
		"a subresource's kind":       {pods + "/p/scale", "application/json", `{"apiVersion":"autoscaling/v1","kind":"Scale",` + labelled, false},
		"what nobody asked for":      {"/api/v1/namespaces/ns/secrets", "application/json", `{"apiVersion":"v1","kind":"Secret",` + labelled, false},
		"what its type does not fit": {pods, "application/json", `{"apiVersion":"v1","kind":"Pod","spec":7,` + labelled, true},
		"a Table, as kubectl has":    {pods, "application/json;as=Table;g=meta.k8s.io;v=v1", `{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[{"object":{"kind":"PartialObjectMetadata",` + labelled + `}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			rt := reply{code: http.StatusCreated, contentType: test.contentType, body: strings.NewReader(test.body)}
			c, err := client.New(&rest.Config{Host: "http://api.test", Transport: rt}, client.Options{})
			testkit.NoError(t, err)
			l := journal.New(journal.Origin{Owner: decodes(func(r schema.GroupResource) bool { return r.Resource != "secrets" })})
			req, err := http.NewRequestWithContext(journal.With(t.Context(), l), http.MethodPost, "http://api.test"+test.path, strings.NewReader("{}"))
			testkit.NoError(t, err)
			resp, err := c.HTTPClient().Do(req)
			testkit.NoError(t, err)
			readAll(resp)
			resp.Body.Close()
			writes := l.Writes()
			if len(writes) != 1 || writes[0].UID != "u" {
				t.Fatalf("the ledger has %+v", writes)
			}
			o, _ := writes[0].Object.(metav1.Object)
			if got := o != nil; got != test.want || got && o.GetLabels()["app"] != "shop" {
				t.Errorf("the object is %+v, wanted: %v", writes[0].Object, test.want)
			}
		})
	}
}

// TestLedgerHost: several clusters behind one proxy are told apart.
func TestLedgerHost(t *testing.T) {
	for _, host := range []string{"http://api.test", "http://api.test/k8s/clusters/a", "http://api.test/k8s/clusters/b/"} {
		c, err := client.New(&rest.Config{Host: host, Transport: ok(plain)}, client.Options{})
		testkit.NoError(t, err)
		l := journal.New(journal.Origin{})
		if _, err := client.For[*corev1.Pod](c).Create(journal.With(t.Context(), l), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}); err == nil {
			t.Log("the answer to discovery was taken for one")
		}
		for _, r := range l.Requests() {
			testkit.Equal(t, r.Host, strings.TrimSuffix(host, "/"), "the host")
		}
		testkit.NotEqual(t, len(l.Requests()), 0, "no request")
	}
}
