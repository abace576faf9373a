// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Sorts of requests that a leader makes.
const (
	protects = "protected"   // an update with a version
	patches  = "unprotected" // a patch without a version
	serves   = "served"      // a write of Reconcile
	reads    = "read"
)

// labelled identifies the origin of a request: the term's version and the sort. It is independent
// of what the fence checks.
type labelled struct{ term, sort string }

type labelKey struct{}

func withLabel(ctx context.Context, term, sort string) context.Context {
	return context.WithValue(ctx, labelKey{}, labelled{term, sort})
}

// witness is a transport below the whole library. A request that reaches it has passed the fence,
// except the last check, which follows when there is a connection. It writes the request's origin
// into the user agent, for the later observers.
type witness struct {
	*reporter

	base     http.RoundTripper
	identity string
	linger   time.Duration
	n        atomic.Int64
}

// config returns a replica's configuration. It creates the transport, so that the library's part
// runs above the witness.
func (o *orders) config(r *reporter) (*rest.Config, error) {
	tls := rest.TLSClientConfig{CAData: o.CA}
	if o.HTTP1 {
		tls.NextProtos = []string{"http/1.1"}
	}
	base, err := rest.TransportFor(&rest.Config{Host: o.Host, TLSClientConfig: tls})
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: o.Host, BearerToken: o.Token, QPS: -1,
		Transport: &witness{reporter: r, base: base, identity: o.Identity, linger: o.Linger},
	}, nil
}

// WrappedRoundTripper lets the fence find the *http.Transport below, which reports when it has a
// connection.
func (w *witness) WrappedRoundTripper() http.RoundTripper { return w.base }

// RoundTrip implements http.RoundTripper.
func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	label, ok := req.Context().Value(labelKey{}).(labelled)
	if !ok {
		return w.lease(req)
	}
	id := int(w.n.Add(1))
	trace := &httptrace.ClientTrace{
		// The fence's own GotConn runs after this one.
		GotConn:      func(httptrace.GotConnInfo) { w.tell(report{What: passed, ID: id, Term: label.term}) },
		WroteRequest: func(httptrace.WroteRequestInfo) { w.tell(report{What: wrote, ID: id}) },
	}
	if w.linger > 0 && id%4 == 0 {
		// With HTTP/1.1, nothing has been flushed to the operating system at this point.
		trace.WroteHeaders = func() { <-time.After(w.linger) }
	}
	req = req.Clone(httptrace.WithClientTrace(req.Context(), trace))
	req.Header.Set("User-Agent", fmt.Sprintf("ha %s %d %s %s", w.identity, id, label.term, label.sort))
	resp, err := w.base.RoundTrip(req)
	w.tell(report{What: done, ID: id})
	return resp, err
}

// lease reports writes of the Lease.
func (w *witness) lease(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || !strings.Contains(req.URL.Path, "/leases") || req.GetBody == nil {
		return w.base.RoundTrip(req)
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	l, err := readLease(body)
	if err != nil {
		return nil, err
	}
	if holderOf(l) == "" {
		w.tell(report{What: releases})
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", leaseAgent+w.identity)
	resp, err := w.base.RoundTrip(req)
	if err == nil && resp.StatusCode < 300 && holderOf(l) != "" {
		w.tell(report{What: renewed, Sent: l.Spec.RenewTime.UnixNano()})
	}
	return resp, err
}

// leaseAgent begins the user agent of writes of the Lease.
const leaseAgent = "ha-lease "

func readLease(body io.ReadCloser) (*coordinationv1.Lease, error) {
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	l, ok := object.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("%T is written as a Lease", object)
	}
	return l, nil
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
