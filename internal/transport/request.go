// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/apipath"
	"github.com/setpoint-dev/setpoint/internal/wire"
	"github.com/setpoint-dev/setpoint/ledger"
)

// server is the API server's address, and a proxy's path before it.
type server struct {
	scheme, host, path string
	origin             string // all three
	buffers            buffers
}

func serverAt(u *url.URL) server {
	path := strings.TrimSuffix(u.Path, "/")
	return server{scheme: u.Scheme, host: u.Host, path: path, origin: u.Scheme + "://" + u.Host + path}
}

// read returns what a request is, and the UID that it insists on when it deletes.
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

// known returns r, or what the request is if r is nil.
func (s *server) known(req *http.Request, r *ledger.Request) *ledger.Request {
	if r == nil {
		read, _ := s.read(req)
		return &read
	}
	return r
}

func eventOf(r *ledger.Request, controller, unknown string) hook.APIRequest {
	return hook.APIRequest{
		Controller: controller, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		DryRun: r.DryRun, Status: r.Status, Took: r.Took, Err: r.Err, Unknown: unknown,
	}
}
