// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// sized returns an object of a size in each format; half of it, at most 20 KB, is in managedFields.
func sized(t testing.TB, size int) map[string][]byte {
	t.Helper()
	half := min(size/2, 20<<10) - 200
	fields := `{"f:data":{` + strings.TrimSuffix(strings.Repeat(`"f:a":{},`, half/9), ",") + `}}`
	m := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "m", Namespace: "ns", UID: "2f6e2ce5-5d0b-4d0d-a2f8-1f2f3b6e7c11", ResourceVersion: "123456",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Apply", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}},
		},
	}
	m.Data = map[string]string{"x": strings.Repeat("y", max(0, size-m.Size()))}
	var pb bytes.Buffer
	js, err := json.Marshal(m)
	testkit.NoError(t, err)
	testkit.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(m, &pb))
	return map[string][]byte{"application/json": js, "application/vnd.kubernetes.protobuf": pb.Bytes()}
}

// loop is a transport that always answers the same, with few allocations of its own.
type loop struct {
	header http.Header
	body   []byte
}

func (l *loop) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: l.header, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(l.body))}, nil
}

// trip makes requests of one kind through a transport; each Reconcile has a ledger and makes 10.
type trip struct {
	rt      http.RoundTripper
	ctx     context.Context // of a request without a ledger
	req     *http.Request
	leading *fence.Term
	buf     []byte
}

func newTrip(t testing.TB, base http.RoundTripper, attributed bool, method, body string) *trip {
	t.Helper()
	rt := base
	if attributed {
		c, err := client.New(&rest.Config{Host: "http://x.test", Transport: base}, client.Options{})
		testkit.NoError(t, err)
		rt = c.HTTPClient().Transport
		for { // below client-go's own wrappers
			w, ok := rt.(interface{ WrappedRoundTripper() http.RoundTripper })
			if !ok || w.WrappedRoundTripper() == base {
				break
			}
			rt = w.WrappedRoundTripper()
		}
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://x.test/api/v1/namespaces/ns/configmaps/m", strings.NewReader(body))
	testkit.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	// client-go's requests are traced, too
	trace := &httptrace.ClientTrace{DNSStart: func(httptrace.DNSStartInfo) {}, DNSDone: func(httptrace.DNSDoneInfo) {}}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	return &trip{rt: rt, ctx: req.Context(), req: req, buf: make([]byte, 32<<10)}
}

func (t *trip) once() {
	resp, err := t.rt.RoundTrip(t.req)
	if err != nil {
		panic(err)
	}
	for err == nil {
		_, err = resp.Body.Read(t.buf)
	}
	resp.Body.Close()
}

// reconcile begins one.
func (t *trip) reconcile() {
	t.req = t.req.WithContext(journal.With(fence.With(t.ctx, t.leading), journal.New(journal.Origin{Controller: "c"})))
}

// BenchmarkLedger prints the ledger's cost per request: nanoseconds and allocations above the same
// transport without one. Allocations are whole numbers, as in allocs/op, so the ledger's growth of
// a quarter to a half per request does not show.
func BenchmarkLedger(b *testing.B) {
	for _, size := range []int{1 << 10, 10 << 10, 100 << 10} {
		for contentType, body := range sized(b, size) {
			base := &loop{header: http.Header{"Content-Type": {contentType}}, body: body}
			for _, c := range []struct{ name, method, sends string }{
				{"read", http.MethodGet, ""}, {"write", http.MethodPut, ""}, {"update", http.MethodPut, string(sized(b, size)["application/json"])},
			} {
				if c.name != "write" && contentType != "application/json" {
					continue
				}
				b.Run(fmt.Sprintf("%s/%dKB/%s", c.name, size>>10, contentType[len("application/"):]), func(b *testing.B) { measure(b, base, c.method, c.sends, true, nil) })
			}
		}
	}
	base := &loop{header: http.Header{"Content-Type": {"application/json"}}, body: sized(b, 1<<10)["application/json"]}
	b.Run("without a ledger", func(b *testing.B) { measure(b, base, http.MethodPut, "", false, nil) })
}

// BenchmarkTerm prints the same for requests that have a ledger and a term, or a part of one.
func BenchmarkTerm(b *testing.B) {
	body := sized(b, 1<<10)["application/json"]
	base := &loop{header: http.Header{"Content-Type": {"application/json"}}, body: body}
	leading := fence.New(fence.Token{}, time.Now(), time.Hour)
	defer leading.End(nil)
	b.Run("read", func(b *testing.B) { measure(b, base, http.MethodGet, "", true, leading) })
	b.Run("update", func(b *testing.B) { measure(b, base, http.MethodPut, string(body), true, leading) })
	b.Run("update of a part", func(b *testing.B) { measure(b, base, http.MethodPut, string(body), true, leading.Part("slot 17")) })
}

func measure(b *testing.B, base http.RoundTripper, method, sends string, reconcile bool, leading *fence.Term) {
	plain, with := newTrip(b, base, false, method, sends), newTrip(b, base, true, method, sends)
	with.leading = leading
	plain.once()
	if reconcile {
		with.reconcile()
	}
	with.once()
	allocs := func(t *trip) float64 { return testing.AllocsPerRun(20, t.once) }
	more := allocs(with) - allocs(plain)
	var took [2]time.Duration
	n := 0
	for b.Loop() {
		if n++; reconcile && n%10 == 0 {
			b.StopTimer()
			with.reconcile()
			b.StartTimer()
		}
		start := time.Now()
		plain.once()
		middle := time.Now()
		with.once()
		took[0] += middle.Sub(start)
		took[1] += time.Since(middle)
	}
	b.ReportMetric(float64(took[1]-took[0])/float64(n), "added-ns/op")
	b.ReportMetric(more, "added-allocs/op")
	b.ReportMetric(0, "ns/op")
}
