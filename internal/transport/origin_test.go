// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

// decodes is an owner that wants some resources.
type decodes func(schema.GroupResource) bool

func (d decodes) Decodes(r schema.GroupResource) bool { return d(r) }

func (decodes) Late(*ledger.LateWriteError) {}

// TestLedgerObject: the object is there if it was wanted and the response had all of it. In any
// case the caller reads the same bytes, and not more than it asks for.
func TestLedgerObject(t *testing.T) {
	object := func(kind, more string) string {
		return `{"kind":"` + kind + `","apiVersion":"v1","metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"7","labels":{"a":"b"}}` + more + `}`
	}
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		return b.String()
	}
	formats := sized(t, 20<<10)
	pod, custom := object("Pod", ""), strings.Replace(object("Website", ""), `"v1"`, `"x.test/v1"`, 1)
	const configMaps, websites = "/api/v1/namespaces/ns/configmaps/m", "/apis/x.test/v1/namespaces/ns/websites/p"
	for name, c := range map[string]struct {
		request string
		reply   reply
		body    string
		want    string // Go type of the object
	}{
		"JSON":               {"PUT " + pods + "/p", reply{}, pod, "*v1.Pod"},
		"create":             {"POST " + pods, reply{code: http.StatusCreated}, pod, "*v1.Pod"},
		"status":             {"PATCH " + pods + "/p/status", reply{}, pod, "*v1.Pod"},
		"deleting":           {"DELETE " + pods + "/p", reply{}, pod, "*v1.Pod"},
		"large":              {"PUT " + pods + "/p", reply{}, object("Pod", `,"spec":{"nodeName":"`+strings.Repeat("n", 900<<10)+`"}`), "*v1.Pod"},
		"compressed":         {"PUT " + pods + "/p", reply{encoding: "gzip"}, zip(pod), "*v1.Pod"},
		"protobuf":           {"PUT " + configMaps, reply{contentType: "application/vnd.kubernetes.protobuf"}, string(formats["application/vnd.kubernetes.protobuf"]), "*v1.ConfigMap"},
		"custom":             {"PUT " + websites, reply{}, custom, "*unstructured.Unstructured"},
		"too large":          {"PUT " + pods + "/p", reply{}, object("Pod", `,"spec":{"nodeName":"`+strings.Repeat("n", 1<<20)+`"}`), "<nil>"},
		"not asked for":      {"PUT " + strings.Replace(pods, "pods", "secrets", 1) + "/p", reply{}, strings.Replace(pod, "Pod", "Secret", 1), "<nil>"},
		"Scale":              {"PUT " + pods + "/p/scale", reply{}, object("Scale", ""), "<nil>"},
		"Table":              {"PUT " + pods + "/p", reply{}, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"object":` + pod + `}]}`, "<nil>"},
		"metadata":           {"PUT " + pods + "/p", reply{}, strings.Replace(object("PartialObjectMetadata", ""), `"v1"`, `"meta.k8s.io/v1"`, 1), "*v1.PartialObjectMetadata"},
		"broken at the end":  {"PUT " + pods + "/p", reply{}, object("Pod", `,"spec":[`), "<nil>"},
		"of no type":         {"PUT " + pods + "/p", reply{}, strings.Replace(pod, `"kind":"Pod",`, "", 1), "<nil>"},
		"deletecollection":   {"DELETE " + pods, reply{}, `{"kind":"PodList","apiVersion":"v1","items":[` + pod + `]}`, "<nil>"},
		"wrong for its type": {"PUT " + pods + "/p", reply{}, object("Pod", `,"spec":7`), "*unstructured.Unstructured"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []schema.GroupResource
			l := journal.New(journal.Origin{Owner: decodes(func(r schema.GroupResource) bool {
				asked = append(asked, r)
				return r.Resource != "secrets"
			})})
			body := &stingy{Reader: strings.NewReader(c.body)}
			if c.reply.body = body; c.reply.code == 0 {
				c.reply.code = http.StatusOK
			}
			f, err := client.New(&rest.Config{Host: "http://x.test", Transport: c.reply}, client.Options{})
			testkit.NoError(t, err)
			method, path, _ := strings.Cut(c.request, " ")
			req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), method, "http://x.test"+path, nil)
			resp, err := f.HTTPClient().Do(req)
			testkit.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != c.body {
				t.Errorf("read %d bytes of %d: %v", len(got), len(c.body), err)
			}
			writes := l.Writes()
			if len(writes) != 1 || writes[0].Host != "http://x.test" || writes[0].UID == "" {
				t.Fatalf("the ledger has %+v", writes)
			}
			testkit.Equal(t, fmt.Sprintf("%T", writes[0].Object), c.want)
			if o, is := writes[0].Object.(metav1.Object); is && (o.GetUID() != writes[0].UID || o.GetResourceVersion() != writes[0].ResourceVersion) {
				t.Errorf("the object is %s at %s, the write is %s at %s", o.GetUID(), o.GetResourceVersion(), writes[0].UID, writes[0].ResourceVersion)
			}
			testkit.AtMost(t, len(asked), 1)
		})
	}
}

// stingy reads only, and cannot write itself elsewhere as a strings.Reader can.
type stingy struct{ io.Reader }

// TestLedgerObjectIsNotReadAhead: an answer that the caller does not read has no object.
func TestLedgerObjectIsNotReadAhead(t *testing.T) {
	body := strings.NewReader(plain)
	f, err := client.New(&rest.Config{Host: "http://x.test", Transport: reply{code: http.StatusOK, body: body}}, client.Options{})
	testkit.NoError(t, err)
	l := journal.New(journal.Origin{Owner: decodes(func(schema.GroupResource) bool { return true })})
	req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), http.MethodPut, "http://x.test"+pods+"/p", nil)
	resp, err := f.HTTPClient().Do(req)
	testkit.NoError(t, err)
	whole := len(plain)
	io.ReadFull(resp.Body, make([]byte, whole-1))
	testkit.Equal(t, body.Len(), 1, "bytes are left")
	resp.Body.Close()
	testkit.NotEqual(t, testkit.Err(resp.Body.Read(make([]byte, 1))), nil, "a closed body can be read")
	if w := l.Writes(); len(w) != 1 || w[0].UID != "u" || w[0].Object != nil {
		t.Errorf("the ledger has %+v", w)
	}
}

func TestRequestHost(t *testing.T) {
	f, err := client.New(&rest.Config{Host: "http://x.test:8080/prefix", Transport: reply{code: http.StatusOK}}, client.Options{})
	testkit.NoError(t, err)
	for _, host := range []string{"http://x.test:8080", "https://x.test:8080", "http://y.test"} {
		l := journal.New(journal.Origin{})
		req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), http.MethodGet, host+"/prefix"+pods, nil)
		testkit.NoError(t, testkit.Err(f.HTTPClient().Do(req)))
		if got := l.Requests(); len(got) != 1 || got[0].Host != host+"/prefix" || got[0].Path != "/prefix"+pods {
			t.Errorf("%s: %+v", host, got)
		}
	}
}

// TestWrote says no only where nothing can have been written.
func TestWrote(t *testing.T) {
	for request, want := range map[string]bool{
		"GET " + pods: false, "PUT " + pods + "/p": true, "PUT " + pods + "/p?dryRun=All": false, "POST " + pods + "/p/exec": false, "DELETE " + pods: true,
	} {
		l := ask(t, reply{code: http.StatusConflict}, "http://x.test", request, readAll)
		testkit.Equal(t, l.Wrote(), want, request)
		testkit.DeepEqual(t, l.Writes(), []ledger.Write(nil), request)
	}
}

func TestReconcileID(t *testing.T) {
	for want, o := range map[string]journal.Origin{"": {}, "a1-7": {Run: "a1", Delivery: 7}, "-7": {Delivery: 7}, "a1-0": {Run: "a1"}} {
		testkit.Equal(t, journal.ReconcileID(o.Run, o.Delivery), want)
	}
}

// TestUserAgentOfControllers: the controller is added to the configured user agent, for any number
// of controllers at once. Other user agents stay.
func TestUserAgentOfControllers(t *testing.T) {
	var mu sync.Mutex
	var agents []string
	rt := roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		agents = append(agents, strings.Join(r.Header["User-Agent"], ","))
		return ok(plain).RoundTrip(r)
	})
	f, err := client.New(&rest.Config{Host: "http://x.test", Transport: rt, UserAgent: "op"}, client.Options{})
	testkit.NoError(t, err)
	cfg := f.Config()
	cfg.UserAgent = "own"
	own, err := rest.HTTPClientFor(cfg)
	testkit.NoError(t, err)
	get := func(h *http.Client, controller, agent string) {
		req, _ := http.NewRequestWithContext(journal.With(t.Context(), journal.New(journal.Origin{Controller: controller})), http.MethodGet, "http://x.test"+pods, nil)
		if agent != "" {
			req.Header.Set("User-Agent", agent)
		}
		testkit.Equal(t, testkit.Err(h.Do(req)), nil)
		testkit.Equal(t, req.Header.Get("User-Agent"), agent, "the caller's request says")
	}
	get(f.HTTPClient(), "", "")
	get(f.HTTPClient(), "web", "")
	get(f.HTTPClient(), "web", "")
	get(f.HTTPClient(), "wéb\n", "")
	get(f.HTTPClient(), "web", "mine")
	get(own, "web", "")
	want := []string{"op", "op controller/web", "op controller/web", "op controller/w_b_", "mine", "own"}
	testkit.SlicesEqual(t, agents, want, "the user agents")
	agents = nil
	var group sync.WaitGroup
	for i := range 2000 { // more than are kept
		group.Go(func() { get(f.HTTPClient(), fmt.Sprint(i%1500), "") })
	}
	group.Wait()
	slices.Sort(agents)
	agents = slices.Compact(agents)
	testkit.Equal(t, len(agents), 1500, "user agents")
}
