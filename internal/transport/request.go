// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/apipath"
	"github.com/setpoint-dev/setpoint/internal/wire"
	"github.com/setpoint-dev/setpoint/ledger"
)

// server is the API server's address, with the path of a proxy.
type server struct {
	scheme, host, path string
	origin             string // all three
	buffers            buffers
}

func serverAt(u *url.URL) server {
	path := strings.TrimSuffix(u.Path, "/")
	return server{scheme: u.Scheme, host: u.Host, path: path, origin: u.Scheme + "://" + u.Host + path}
}

// read describes a request. For a delete it also returns the UID of the preconditions.
func (s *server) read(req *http.Request) (ledger.Request, types.UID) {
	path, prefix := req.URL.Path, ""
	if below, ok := strings.CutPrefix(path, s.path); ok && strings.HasPrefix(below, "/") {
		path, prefix = below, s.path
	}
	target := apipath.Parse(req.Method, path, req.URL.RawQuery)
	r := ledger.Request{
		Verb: target.Verb, Group: target.Group, Version: target.Version, Resource: target.Resource, Subresource: target.Subresource,
		Namespace: target.Namespace, Name: target.Name, Host: s.origin, Path: req.URL.Path, Started: time.Now(),
	}
	if req.URL.Host != s.host || req.URL.Scheme != s.scheme || prefix != s.path {
		r.Host = req.URL.Scheme + "://" + req.URL.Host + prefix
	}
	if r.Resource == "namespaces" {
		r.Namespace = ""
	}
	if !r.Mutates() {
		return r, ""
	}
	r.FieldManager = parameter(req.URL.RawQuery, "fieldManager=")
	r.DryRun = strings.Contains(req.URL.RawQuery, "dryRun") && req.URL.Query().Get("dryRun") != ""
	if !strings.HasPrefix(r.Verb, "delete") && r.Subresource != "eviction" {
		return r, ""
	}
	var uid types.UID
	s.buffers.sent(req.GetBody, func(body []byte) {
		o, _ := wire.Read(wire.FormatOf(req.Header.Get("Content-Type")), body, wire.Options{})
		r.DryRun = r.DryRun || o.DryRun
		uid = types.UID(o.Precondition)
	})
	return r, uid
}

// parameter returns the first value of a query's parameter, without parsing the others.
func parameter(query, name string) string {
	for part := range strings.SplitSeq(query, "&") {
		if value, ok := strings.CutPrefix(part, name); ok {
			value, _ = url.QueryUnescape(value) // an error is the API server's to report
			return value
		}
	}
	return ""
}

func eventOf(r *ledger.Request, controller, unknown string) hook.APIRequest {
	return hook.APIRequest{
		Controller: controller, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		DryRun: r.DryRun, Status: r.Status, Took: r.Took, Err: r.Err, Unknown: unknown,
	}
}

// sign adds the controller to client-go's user agent. Another one may come from the caller's own
// request, so it stays.
func sign(req *http.Request, configured, controller string) {
	own := req.Header["User-Agent"]
	if controller == "" || len(own) != 1 || own[0] != configured {
		return
	}
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r >= unicode.MaxASCII { // not allowed in a header
			return '_'
		}
		return r
	}, controller)
	req.Header["User-Agent"] = []string{configured + " controller/" + name}
}

type buffers struct{ pool sync.Pool } // of *[]byte

// bufferSize is the initial size of a buffer.
const bufferSize = 16 << 10

func (b *buffers) get() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 0, bufferSize)
	return &buf
}

func (b *buffers) put(buf *[]byte) {
	if cap(*buf) <= 256<<10 { // large ones are rare and not worth their memory
		*buf = (*buf)[:0]
		b.pool.Put(buf)
	}
}

// sent calls f with a request's body, up to 1 MiB, if GetBody is set.
func (b *buffers) sent(getBody func() (io.ReadCloser, error), f func([]byte)) {
	if getBody == nil {
		return
	}
	body, err := getBody()
	if err != nil {
		return
	}
	defer body.Close()
	buf := b.get()
	defer b.put(buf)
	for {
		if len(*buf) == cap(*buf) {
			*buf = append(*buf, 0)[:len(*buf)]
		}
		n, err := body.Read((*buf)[len(*buf):cap(*buf)])
		*buf = (*buf)[:len(*buf)+n]
		if err != nil || len(*buf) > answerLimit {
			break
		}
	}
	f(*buf)
}
