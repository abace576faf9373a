// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// network is the proxy between the replicas and the API server. It can be broken for each replica,
// and it sees all requests, including requests whose process died before the answer.
type network struct {
	*fault.Proxy

	base   http.RoundTripper // to the API server
	direct *rest.Config
	groups map[string]*group // by namespace
}

func newNetwork(ctx context.Context, direct *rest.Config, groups map[string]*group) (*network, error) {
	n := &network{direct: direct, groups: groups}
	var err error
	if n.base, err = rest.TransportFor(direct); err != nil {
		return nil, err
	}
	target := rest.CopyConfig(direct)
	target.TLSClientConfig, target.Transport = rest.TLSClientConfig{}, n
	if n.Proxy, err = fault.Start(ctx, target, fault.Options{LogSize: 1}); err != nil {
		return nil, err
	}
	n.Add(fault.Rule{Match: fault.Match{Func: n.arrived}})
	return n, nil
}

// agent is the content of a user agent that a witness has written.
type agent struct {
	identity string
	n        int
	term     uint64
	sort     string
}

func parseAgent(s string) (a agent, ok bool) {
	n, err := fmt.Sscanf(s, "ha %s %d %d %s", &a.identity, &a.n, &a.term, &a.sort)
	return a, err == nil && n == 4
}

// arrived records when a request reaches the proxy. It matches no request.
func (n *network) arrived(r *fault.Request) bool {
	a, ok := parseAgent(r.UserAgent)
	g := n.groups[r.Namespace]
	if !ok || g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.ledger.request(a.identity, a.n)
	q.arrived, q.term, q.sort = r.Started, a.term, a.sort
	return false
}

// RoundTrip runs between the proxy and the API server.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	a, labelled := parseAgent(req.UserAgent())
	namespace, resource, name := split(req.URL.Path)
	g := n.groups[namespace]
	if g == nil || !labelled && (resource != "leases" || req.Method == http.MethodGet) {
		return n.base.RoundTrip(req)
	}
	var lease *coordinationv1.Lease
	if !labelled {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		if lease, err = readLease(body); err != nil {
			return nil, err
		}
	}
	sent := time.Now()
	resp, err := n.base.RoundTrip(req)
	answered := time.Now()
	var version uint64
	if err == nil {
		version, err = readVersion(resp)
	}
	if err != nil {
		resp = nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if labelled {
		q := g.ledger.request(a.identity, a.n)
		q.term, q.sort, q.name, q.sent, q.answered = a.term, a.sort, name, sent, answered
		if resp != nil {
			q.status, q.version = resp.StatusCode, version
		}
	} else if resp != nil && resp.StatusCode < 300 {
		g.leasedLocked(lease, strings.TrimPrefix(req.UserAgent(), leaseAgent), version, answered)
	}
	return resp, err
}

// split returns the namespace, resource and name in a path.
func split(path string) (namespace, resource, name string) {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	parts := append(strings.Split(rest, "/"), "", "")
	return parts[0], parts[1], parts[2]
}

// readVersion reads the whole answer, even if its client is gone, and puts it back.
func readVersion(resp *http.Response) (uint64, error) {
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return 0, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	if resp.StatusCode >= 300 {
		return 0, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return 0, err
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(m.GetResourceVersion(), 10, 64)
}

// leasedLocked records a write of the Lease.
func (g *group) leasedLocked(l *coordinationv1.Lease, by string, version uint64, answered time.Time) {
	w := leaseWrite{version: version, by: by, holder: holderOf(l), answered: answered}
	if l.Spec.RenewTime != nil {
		w.renew = l.Spec.RenewTime.Time
	}
	w.acquires = w.holder != "" && l.Spec.AcquireTime != nil && l.Spec.AcquireTime.Equal(l.Spec.RenewTime)
	g.ledger.leased(w)
	g.newsLocked()
}
