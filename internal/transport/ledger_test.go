// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

func custom(kind string) string {
	return `{"apiVersion":"a.dev/v1","kind":"` + kind + `","metadata":{"name":"p","uid":"u","resourceVersion":"7"},"spec":{},"status":{}}`
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, api *sim.Server, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(api.Config(), o)
	testkit.NoError(t, err)
	return c
}

func name(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply is what a fake API server answers.
type reply struct {
	code        int
	contentType string // default: application/json
	encoding    string
	body        io.Reader
	err         error
}

func (a reply) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	if a.err != nil {
		return nil, a.err
	}
	if a.contentType == "" {
		a.contentType = "application/json"
	}
	resp := &http.Response{
		StatusCode: a.code, Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), Proto: "HTTP/1.1", ContentLength: -1, Request: r,
		Header: http.Header{"Content-Type": {a.contentType}, "Warning": {`299 - "old"`}}, Body: http.NoBody,
	}
	if a.encoding != "" {
		resp.Header.Set("Content-Encoding", a.encoding)
	}
	if a.body != nil {
		resp.Body = io.NopCloser(a.body)
	}
	return resp, nil
}

func ok(body string) reply { return reply{code: http.StatusOK, body: strings.NewReader(body)} }

// ask makes one request and reads its answer.
func ask(t *testing.T, rt http.RoundTripper, host, request string, read func(*http.Response)) *journal.Journal {
	t.Helper()
	c, err := client.New(&rest.Config{Host: host, Transport: rt}, client.Options{})
	testkit.NoError(t, err)
	l := journal.New(journal.Origin{Controller: "test"})
	head, body, _ := strings.Cut(request, " | ")
	method, path, _ := strings.Cut(head, " ")
	req, err := http.NewRequestWithContext(journal.With(t.Context(), l), method, host+path, strings.NewReader(body))
	testkit.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.HTTPClient().Transport.RoundTrip(req)
	if err == nil {
		read(resp)
		resp.Body.Close()
	}
	return l
}

func readAll(resp *http.Response) { io.Copy(io.Discard, resp.Body) }

// says is a ledger in short: what was written, its effect, name, uid, version and what is unknown.
func says(l *journal.Journal) []string {
	var all []string
	for _, w := range l.Writes() {
		s := fmt.Sprintf("%s %s %s %s@%s", w.String(), w.Effect, w.Name, w.UID, w.ResourceVersion)
		if w.Unknown != "" {
			s += ": " + w.Unknown
		}
		all = append(all, s)
	}
	return all
}

const (
	pods     = "/api/v1/namespaces/ns/pods"
	plain    = `{"kind":"Pod","metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"7"},"spec":{}}`
	held     = `{"kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"7","deletionTimestamp":"now","finalizers":["x"]}}`
	unheld   = `{"kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"7","deletionTimestamp":"now"}}`
	graceful = `{"kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"7","deletionTimestamp":"now","deletionGracePeriodSeconds":30}}`
	success  = `{"kind":"Status","metadata":{},"status":"Success"}`
)

func TestLedgerWrites(t *testing.T) {
	const precondition = ` | {"preconditions":{"uid":"pre"}}`
	for name, c := range map[string]struct {
		request string
		reply   reply
		want    string // of the only write; none if empty
	}{
		"create":                 {"POST " + pods, reply{code: 201, body: strings.NewReader(plain)}, "create pods ns/p stored p u@7"},
		"generateName":           {"POST " + pods + ` | {"metadata":{"generateName":"p-"}}`, ok(plain), "create pods ns/p stored p u@7"},
		"no answer body":         {"POST " + pods, reply{code: 201}, "create pods in ns accepted  @: the answer is empty"},
		"nothing in body":        {"POST " + pods, reply{code: 201, body: strings.NewReader("")}, "create pods in ns accepted  @: the answer is empty"},
		"garbage":                {"POST " + pods, ok("{]"), "create pods in ns accepted  @: the answer is not an object, or not a whole one"},
		"HTML":                   {"POST " + pods, reply{code: 200, contentType: "text/html", body: strings.NewReader("<p>")}, `create pods in ns accepted  @: the answer is "text/html", which cannot be read`},
		"Brotli":                 {"POST " + pods, reply{code: 200, encoding: "br", body: strings.NewReader("x")}, `create pods in ns accepted  @: the answer is encoded as "br", which cannot be read`},
		"update":                 {"PUT " + pods + "/p", ok(plain), "update pods ns/p stored p u@7"},
		"status":                 {"PUT " + pods + "/p/status", ok(plain), "update pods/status ns/p stored p u@7"},
		"patch":                  {"PATCH " + pods + `/p | {"metadata":{"labels":{}}}`, ok(plain), "patch pods ns/p stored p u@7"},
		"scale":                  {"PUT /apis/apps/v1/namespaces/ns/deployments/d/scale", ok(`{"kind":"Scale","metadata":{"name":"d","uid":"u","resourceVersion":"8"}}`), "update deployments.apps/scale ns/d stored d u@8"},
		"same version named":     {"PUT " + pods + `/p | {"metadata":{"resourceVersion":"7"}}`, ok(plain), "update pods ns/p unchanged p u@7"},
		"other version named":    {"PUT " + pods + `/p | {"metadata":{"resourceVersion":"6","labels":{"a":"7"}}}`, ok(plain), "update pods ns/p stored p u@7"},
		"patch names version":    {"PATCH " + pods + `/p | {"metadata":{"resourceVersion":"7"}}`, ok(plain), "patch pods ns/p unchanged p u@7"},
		"eviction":               {"POST " + pods + `/p/eviction | {"kind":"Eviction"}`, reply{code: 201, body: strings.NewReader(success)}, "create pods/eviction ns/p accepted p @: the answer is a Status, which does not report the state of the object"},
		"eviction of one uid":    {"POST " + pods + `/p/eviction | {"deleteOptions":{"preconditions":{"uid":"pre"}}}`, ok(success), "create pods/eviction ns/p accepted p pre@: the answer is a Status, which does not report the state of the object"},
		"binding":                {"POST " + pods + "/p/binding", reply{code: 201, body: strings.NewReader(success)}, "create pods/binding ns/p accepted p @: the answer is a Status, which does not report the state of the object"},
		"access review":          {"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ok(`{"kind":"SelfSubjectAccessReview","metadata":{}}`), "create selfsubjectaccessreviews.authorization.k8s.io accepted  @: the answer has no uid or no resourceVersion"},
		"something else":         {"PUT " + pods + "/q", ok(plain), "update pods ns/q accepted q @: the answer is about something else"},
		"delete, Status":         {"DELETE " + pods + "/p", ok(`{"kind":"Status","status":"Success","details":{"name":"p","uid":"u"}}`), "delete pods ns/p gone p u@"},
		"delete, no details":     {"DELETE " + pods + "/p", ok(success), "delete pods ns/p gone p @: the answer does not name the uid"},
		"delete, precondition":   {"DELETE " + pods + "/p" + precondition, ok(success), "delete pods ns/p gone p pre@: the answer does not name the uid"},
		"delete, accepted":       {"DELETE " + pods + "/p", reply{code: 202, body: strings.NewReader(success)}, "delete pods ns/p accepted p @: the answer is a Status, which does not report the state of the object"},
		"delete, object":         {"DELETE " + pods + "/p", ok(plain), "delete pods ns/p gone p u@7"},
		"delete, finalizers":     {"DELETE " + pods + "/p", ok(held), "delete pods ns/p deleting p u@7"},
		"delete, grace":          {"DELETE " + pods + "/p", ok(graceful), "delete pods ns/p deleting p u@7"},
		"delete, no grace":       {"DELETE " + pods + "/p", ok(unheld), "delete pods ns/p gone p u@7"},
		"delete, odd":            {"DELETE " + pods + "/p", ok(`{"metadata":{"name":"p","uid":"u","resourceVersion":"7","finalizers":["x"]}}`), "delete pods ns/p accepted p u@7: the answer is an object with finalizers that is not marked as deleted"},
		"delete namespace":       {"DELETE /api/v1/namespaces/p", ok(unheld), "delete namespaces p deleting p u@7"},
		"namespace goes on":      {"PATCH /api/v1/namespaces/p", ok(unheld), "patch namespaces p stored p u@7"},
		"namespace finalized":    {"PUT /api/v1/namespaces/p/finalize", ok(unheld), "update namespaces/finalize p accepted p u@7: a namespace may have finalizers in its spec"},
		"last finalizer":         {"PATCH " + pods + "/p", ok(unheld), "patch pods ns/p gone p u@7"},
		"not the last":           {"PATCH " + pods + "/p", ok(held), "patch pods ns/p stored p u@7"},
		"finalizer, grace":       {"PATCH " + pods + "/p", ok(graceful), "patch pods ns/p stored p u@7"},
		"deletecollection":       {"DELETE " + pods, ok(success), "deletecollection pods in ns accepted  @: the answer does not list what was deleted"},
		"deletecollection, none": {"DELETE " + pods, ok(`{"kind":"PodList","items":[]}`), ""},
		"deletecollection, one": {"DELETE " + pods, ok(`{"kind":"PodList","items":[` + plain + `]}`),
			"deletecollection pods ns/p accepted p u@: a deletecollection does not report whether an object is gone or only marked, nor its version"},
		"deletecollection, cut": {"DELETE " + pods, reply{code: 200, body: io.MultiReader(strings.NewReader(`{"kind":"PodList","items":[`), iotest.ErrReader(io.ErrUnexpectedEOF))},
			"deletecollection pods in ns accepted  @: the answer was not read: it was cut off: unexpected EOF"},
		"Table":                 {"PATCH " + pods + "/p", ok(`{"kind":"Table","metadata":{"resourceVersion":"7"},"rows":[{"cells":[],"object":` + plain + `}]}`), "patch pods ns/p stored p u@7"},
		"custom kind Status":    {"PUT /apis/a.dev/v1/namespaces/ns/statuses/p", ok(custom("Status")), "update statuses.a.dev ns/p stored p u@7"},
		"custom kind Table":     {"PUT /apis/a.dev/v1/namespaces/ns/tables/p", ok(custom("Table")), "update tables.a.dev ns/p stored p u@7"},
		"custom kind AllowList": {"PUT /apis/a.dev/v1/namespaces/ns/allowlists/p", ok(custom("AllowList")), "update allowlists.a.dev ns/p stored p u@7"},
		"PartialObjectMetadata": {"PATCH " + pods + "/p", reply{code: 200, contentType: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", body: strings.NewReader(plain)},
			"patch pods ns/p stored p u@7"},
		"odd version": {"PUT " + pods + "/p", ok(strings.Replace(plain, `"7"`, `"a:\"7"`, 1)), `update pods ns/p stored p u@a:"7`},
		"odd names":   {"PUT /apis/status/v1/namespaces/scale/watch/status/status", ok(`{"metadata":{"name":"status","uid":"u","resourceVersion":"7"}}`), "update watch.status/status scale/status stored status u@7"},
		"conflict":    {"PUT " + pods + "/p", reply{code: 409, body: strings.NewReader(success)}, ""},
		"not found":   {"DELETE " + pods + "/p", reply{code: 404}, ""},
		"invalid":     {"POST " + pods, reply{code: 422}, ""},
		"throttled":   {"POST " + pods, reply{code: 429}, ""},
		"redirected":  {"POST " + pods, reply{code: 307}, ""},
		"not made":    {"POST " + pods, reply{code: 501}, ""},
		"upgraded":    {"POST " + pods + "/p/exec", reply{code: 101}, ""},
		"token":       {"POST /api/v1/namespaces/ns/serviceaccounts/s/token", ok(plain), ""},
		"proxied":     {"POST /api/v1/namespaces/ns/services/s/proxy/x", ok(plain), ""},
		"not ours":    {"POST /debug/flags/v", ok(plain), ""},
		"read":        {"GET " + pods + "/p", ok(plain), ""},
		"dry run":     {"POST " + pods + "?dryRun=All", ok(plain), ""},
		"dry delete":  {"DELETE " + pods + `/p | {"dryRun":["All"]}`, ok(success), ""},
		"dry evict":   {"POST " + pods + `/p/eviction | {"deleteOptions":{"dryRun":["All"]}}`, ok(success), ""},
		"500":         {"POST " + pods, reply{code: 500, body: strings.NewReader(success)}, "create pods in ns uncertain  @: the answer is 500 Internal Server Error"},
		"504":         {"PUT " + pods + "/p", reply{code: 504}, "update pods ns/p uncertain p @: the answer is 504 Gateway Timeout"},
		"broken":      {"PUT " + pods + "/p", reply{err: io.ErrUnexpectedEOF}, "update pods ns/p uncertain p @: there was no answer: unexpected EOF"},
		"refused":     {"PUT " + pods + "/p", reply{err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, ""},
		"untrusted":   {"PUT " + pods + "/p", reply{err: &tls.CertificateVerificationError{Err: errors.New("unknown")}}, ""},
		"cut off": {"PUT " + pods + "/p", reply{code: 200, body: io.MultiReader(strings.NewReader(plain[:40]), iotest.ErrReader(io.ErrUnexpectedEOF))},
			"update pods ns/p accepted p @: the answer was not read: it was cut off: unexpected EOF"},
		"cut off late":     {"PUT " + pods + "/p", reply{code: 200, body: io.MultiReader(strings.NewReader(plain[:90]), iotest.ErrReader(io.ErrUnexpectedEOF))}, "update pods ns/p stored p u@7"},
		"cut off, quietly": {"PUT " + pods + "/p", ok(plain[:40]), "update pods ns/p accepted p @: the answer is not an object, or not a whole one"},
	} {
		t.Run(name, func(t *testing.T) {
			l := ask(t, c.reply, "http://x.test", c.request, readAll)
			got := strings.Join(says(l), "\n")
			testkit.Equal(t, got, c.want)
			requests := l.Requests()
			if len(requests) != 1 || requests[0].Status != c.reply.code || !errors.Is(requests[0].Err, c.reply.err) {
				t.Errorf("the requests are %+v", requests)
			}
		})
	}
}

func TestLedgerPathPrefix(t *testing.T) {
	for _, host := range []string{"http://x.test/k8s/clusters/c-1", "http://x.test/k8s/clusters/c-1/", "http://x.test/api/v1"} {
		l := ask(t, ok(plain), strings.TrimSuffix(host, "/"), "PUT "+pods+"/p", readAll)
		testkit.DeepEqual(t, says(l), []string{"update pods ns/p stored p u@7"}, host)
	}
}

// The caller gets the bytes of the API server in any way of reading, and the ledger is complete.
func TestLedgerLeavesBodiesAlone(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, plain)
	z.Close()
	large := strings.Replace(plain, `"spec":{}`, `"spec":{"x":"`+strings.Repeat("x", 3<<20)+`"}`, 1)
	late := `{"data":"` + strings.Repeat("x", 900<<10) + `",` + plain[1:]
	tooLate := `{"data":"` + strings.Repeat("x", 2<<20) + `",` + plain[1:]
	broken := errors.New("broken")
	const stored, closed = "patch pods ns/p stored p u@7", "patch pods ns/p accepted p @: the answer was not read: it was closed before its end"
	whole := func(r io.Reader) (string, error) { b, err := io.ReadAll(r); return string(b), err }
	bytewise := func(r io.Reader) (string, error) { return whole(iotest.OneByteReader(r)) }
	some := func(n int64) func(io.Reader) (string, error) {
		return func(r io.Reader) (string, error) { return whole(io.LimitReader(r, n)) }
	}
	for name, c := range map[string]struct {
		body     string
		ends     error
		encoding string
		read     func(io.Reader) (string, error)
		left     int // bytes that the caller does not read
		want     string
	}{
		"whole":               {plain, nil, "", whole, 0, stored},
		"bytewise":            {plain, nil, "", bytewise, 0, stored},
		"large":               {large, nil, "", whole, 0, stored},
		"large, early":        {large, nil, "", some(8 << 10), len(large) - 8<<10, stored},
		"late":                {late, nil, "", whole, 0, stored},
		"too late":            {tooLate, nil, "", whole, 0, "patch pods ns/p accepted p @: the answer was not read: it has more than 1 MiB, and not at its beginning what was looked for"},
		"unread":              {plain, nil, "", some(0), len(plain), closed},
		"partly":              {plain, nil, "", some(30), len(plain) - 30, closed},
		"all but the end":     {plain, nil, "", some(int64(len(plain))), 0, stored},
		"broken":              {plain[:20], broken, "", whole, 0, "patch pods ns/p accepted p @: the answer was not read: it was cut off: broken"},
		"broken at the end":   {plain, broken, "", whole, 0, stored},
		"compressed":          {zipped.String(), nil, "gzip", whole, 0, stored},
		"compressed, partly":  {zipped.String(), nil, "gzip", some(20), zipped.Len() - 20, closed},
		"compressed, not":     {plain, nil, "gzip", whole, 0, "patch pods ns/p accepted p @: the answer was not read: it cannot be decompressed: gzip: invalid header"},
		"compressed, cut off": {zipped.String()[:60], io.ErrUnexpectedEOF, "gzip", whole, 0, "patch pods ns/p accepted p @: the answer was not read: it was cut off: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var body io.Reader = strings.NewReader(c.body)
			if c.ends != nil {
				body = io.MultiReader(body, iotest.ErrReader(c.ends))
			}
			l := ask(t, reply{code: http.StatusOK, encoding: c.encoding, body: body}, "http://x.test", "PATCH "+pods+"/p", func(resp *http.Response) {
				got, err := c.read(resp.Body)
				if got != c.body[:len(c.body)-c.left] || !errors.Is(err, c.ends) {
					t.Errorf("the caller got %d bytes and %v, want %d and %v", len(got), err, len(c.body)-c.left, c.ends)
				}
				testkit.NotEqual(t, resp.Header.Get("Warning"), "", "a header is lost")
			})
			testkit.Equal(t, strings.Join(says(l), "\n"), c.want)
		})
	}
}

// What may stream is handed over as it is.
func TestLedgerLeavesStreamsAlone(t *testing.T) {
	for _, c := range []struct{ request, contentType string }{
		{"GET " + pods + "?watch=1", "application/json"},
		{"GET " + pods + "/p/log?follow=true", "text/plain"},
		{"GET " + pods + "/p", "application/json"},
		{"POST " + pods + "/p/exec", "application/json"},
		{"POST " + pods, "application/json;stream=watch"},
		{"POST /api/v1/namespaces/ns/services/s/proxy/x", "application/json"},
	} {
		body := io.NopCloser(strings.NewReader("x"))
		rt := roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {c.contentType}}, Body: body, ContentLength: -1}, nil
		})
		l := ask(t, rt, "http://x.test", c.request, func(resp *http.Response) {
			testkit.Equal(t, resp.Body, body, c.request, "the body is another")
		})
		testkit.Equal(t, len(l.Requests()), 1, fmt.Sprintf("%s is not in the ledger", c.request))
	}
}

func TestLedgerPending(t *testing.T) {
	l := journal.New(journal.Origin{})
	var during []string
	rt := roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		during = says(l)
		return ok(plain).RoundTrip(r)
	})
	c, err := client.New(&rest.Config{Host: "http://x.test", Transport: rt}, client.Options{})
	testkit.NoError(t, err)
	put := func(ctx context.Context) *http.Response {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPut, "http://x.test"+pods+"/p", nil)
		resp, err := c.HTTPClient().Do(req)
		testkit.NoError(t, err)
		return resp
	}
	ctx := journal.With(t.Context(), l)
	resp := put(ctx)
	before := says(l)
	readAll(resp)
	resp.Body.Close()
	want := [][]string{
		{"update pods ns/p pending p @: there is no answer yet"},
		{"update pods ns/p accepted p @: the answer is not read yet"},
		{"update pods ns/p stored p u@7"},
	}
	testkit.DeepEqual(t, [][]string{during, before, says(l)}, want)
	for range 2 { // the same version again
		resp = put(ctx)
		readAll(resp)
	}
	if got := says(l); got[1] != "update pods ns/p unchanged p u@7" || got[2] != got[1] {
		t.Errorf("a repeated write is %v", got)
	}
	resp = put(ledger.Without(ctx))
	readAll(resp)
	testkit.Len(t, l.Requests(), 3, "a request without a ledger is in one")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	req, _ := http.NewRequestWithContext(cancelled, http.MethodPut, "http://x.test"+pods+"/p", nil)
	if _, err := c.HTTPClient().Transport.RoundTrip(req); !errors.Is(err, context.Canceled) || len(says(l)) != 3 || len(l.Requests()) != 4 {
		t.Errorf("a request that was cancelled before it began gives %v, and %v", err, says(l))
	}
}

func TestLedgerBounds(t *testing.T) {
	items := strings.Repeat(plain+",", 9999) + plain
	answer := func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			return ok(`{"kind":"PodList","items":[` + items + `]}`).RoundTrip(r)
		}
		return ok(plain).RoundTrip(r)
	}
	c, err := client.New(&rest.Config{Host: "http://x.test", Transport: roundTripper(answer)}, client.Options{})
	testkit.NoError(t, err)
	l := journal.New(journal.Origin{})
	var group sync.WaitGroup
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		group.Go(func() {
			for range 105 {
				req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), method, "http://x.test"+pods+"/p", nil)
				resp, err := c.HTTPClient().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				readAll(resp)
				resp.Body.Close()
				l.Writes()
			}
		})
	}
	group.Wait()
	if reads, writes := l.LeftOut(); len(l.Requests()) != 205 || len(l.Writes()) != 105 || reads != 5 || writes != 0 {
		t.Errorf("%d requests, %d writes, left out %d and %d", len(l.Requests()), len(l.Writes()), reads, writes)
	}
	items = strings.Repeat(`{"metadata":{"name":"x"}},`, 9999) + plain
	for _, method := range []string{http.MethodDelete, http.MethodPut} {
		req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), method, "http://x.test"+pods, nil)
		resp, err := c.HTTPClient().Do(req)
		testkit.NoError(t, err)
		readAll(resp)
	}
	// The deletecollection itself is one entry, and turned out to be many.
	if _, writes := l.LeftOut(); len(l.Writes()) != 10_000-1 || writes != 107 {
		t.Errorf("%d writes, left out %d", len(l.Writes()), writes)
	}
}

func TestLedgerHook(t *testing.T) {
	var got []hook.APIRequest
	o := client.Options{Hook: hook.On(func(r *hook.APIRequest) { got = append(got, *r) })}
	c, err := client.New(&rest.Config{Host: "http://x.test", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return ok(plain).RoundTrip(r)
		}
		return reply{code: http.StatusCreated}.RoundTrip(r)
	})}, o)
	testkit.NoError(t, err)
	again, err := client.New(c.Config(), client.Options{}) // keeps one ledger, not two
	testkit.NoError(t, err)
	l := journal.New(journal.Origin{Controller: "web"})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, h := range []*http.Client{c.HTTPClient(), again.HTTPClient()} {
			req, _ := http.NewRequestWithContext(journal.With(t.Context(), l), method, "http://x.test"+pods, nil)
			resp, err := h.Do(req)
			testkit.NoError(t, err)
			readAll(resp)
		}
	}
	for i := range got {
		got[i].Took = 0
	}
	list := hook.APIRequest{Controller: "web", Verb: "list", Version: "v1", Resource: "pods", Status: 200}
	create := hook.APIRequest{Controller: "web", Verb: "create", Version: "v1", Resource: "pods", Status: 201, Unknown: "the answer is empty"}
	// The second Client has no hooks of its own, and one ledger.
	want := []hook.APIRequest{list, list, create, create}
	testkit.SlicesEqual(t, got, want)
	testkit.Equal(t, len(l.Requests()), 4)
}
