// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/bubble"
)

// Webhooks are called over the network or by a handler.
type Webhooks struct {
	Handler http.Handler // of UseWebhooks
}

// Question identifies a call to a webhook within one request.
type Question string

// Answer is what a webhook answered.
type Answer struct {
	Body    []byte
	UID     types.UID // of the review
	Version string    // of the review
	Err     error
}

// pending is the error of a request that first needs a webhook's answer. The server makes the call
// without its lock, and then serves the request again from the beginning. So nothing may be stored
// before the last question of a request.
type pending struct {
	question Question
	call     func(context.Context) Answer
}

func (p *pending) Error() string { return "sim: a webhook has to answer first: " + string(p.question) }

// Ask returns the error that makes a webhook answer a review, which is JSON. The call ends with the
// timeout.
func (w *Webhooks) Ask(q Question, at admissionregistrationv1.WebhookClientConfig, timeout time.Duration, uid types.UID, version string, review []byte) error {
	to := backend{WebhookClientConfig: at, handler: w.Handler, timeout: timeout}
	return &pending{question: q, call: func(ctx context.Context) Answer {
		body, err := to.post(ctx, review)
		return Answer{Body: body, UID: uid, Version: version, Err: err}
	}}
}

// IsPending reports whether a webhook has to answer before the request can be served.
func IsPending(err error) bool {
	_, pends := errors.AsType[*pending](err)
	return pends
}

// Answers are the known answers of webhooks.
type Answers map[Question]Answer

// Resolve makes the call that err asks for and records its answer. It returns false if err is
// another error, or nil.
func (a *Answers) Resolve(ctx context.Context, err error) bool {
	p, pends := errors.AsType[*pending](err)
	if !pends {
		return false
	}
	if *a == nil {
		*a = Answers{}
	}
	(*a)[p.question] = p.call(ctx)
	return true
}

// backend is where a webhook listens.
type backend struct {
	admissionregistrationv1.WebhookClientConfig
	handler http.Handler  // of UseWebhooks
	timeout time.Duration // of one call
}

// post sends a review, which is JSON, and returns the body of the answer.
func (b backend) post(ctx context.Context, review []byte) ([]byte, error) {
	client, err := b.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	result := client.Post().Timeout(b.timeout).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(review).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err == nil && len(body) == 0 {
		var code int
		result.StatusCode(&code)
		err = fmt.Errorf("0-length response with status code: %d and content type: %s", code, runtime.ContentTypeJSON)
	}
	return body, err
}

// client returns a client like the real server's, so that it has the same errors.
func (b backend) client() (*rest.RESTClient, error) {
	at, err := b.address()
	if err != nil {
		return nil, err
	}
	cfg := &rest.Config{Host: at.Scheme + "://" + at.Host, APIPath: at.Path, QPS: -1}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	cfg.GroupVersion = &schema.GroupVersion{}
	cfg.CAData = b.CABundle
	transport, err := b.transport(cfg)
	if err != nil {
		return nil, err
	}
	return rest.UnversionedRESTClientForConfigAndClient(cfg, &http.Client{Transport: transport})
}

func (b backend) address() (*url.URL, error) {
	if b.URL != nil {
		return url.Parse(*b.URL)
	}
	if b.Service == nil {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	at := &url.URL{Scheme: "https"}
	port := int32(443)
	if b.Service.Port != nil {
		port = *b.Service.Port
	}
	if b.Service.Path != nil {
		at.Path = *b.Service.Path
	}
	at.Host = net.JoinHostPort(b.Service.Name+"."+b.Service.Namespace+".svc", strconv.Itoa(int(port)))
	return at, nil
}

// transport returns the way to the webhook. It keeps no connections, so that none outlives a test.
func (b backend) transport(cfg *rest.Config) (http.RoundTripper, error) {
	switch {
	case b.handler != nil:
		return roundTrip(b.serve), nil
	case bubble.Inside():
		return roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("sim: sockets do not work in a synctest bubble; give the webhook's handler to Server.UseWebhooks")
		}), nil
	case b.Service != nil:
		return roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("sim: service %s/%s has no endpoints; use a url, or give the webhook's handler to Server.UseWebhooks",
				b.Service.Namespace, b.Service.Name)
		}), nil
	}
	config, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, nil
}

// serve answers a request by the handler.
func (b backend) serve(h *http.Request) (*http.Response, error) {
	if h.URL.Port() == "0" { // nothing can listen there
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	as := h.Clone(h.Context())
	as.RequestURI, as.Host, as.RemoteAddr = h.URL.RequestURI(), h.URL.Host, "127.0.0.1:1"
	w := &recorder{header: http.Header{}, code: http.StatusOK}
	aborted := w.serve(b.handler, as)
	switch {
	case h.Context().Err() != nil:
		return nil, h.Context().Err()
	case aborted:
		return nil, io.EOF
	}
	return &http.Response{
		StatusCode: w.code, Status: fmt.Sprintf("%d %s", w.code, http.StatusText(w.code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: h,
	}, nil
}

// recorder is the http.ResponseWriter of a call in process.
type recorder struct {
	header http.Header
	code   int
	wrote  bool
	body   bytes.Buffer
}

// serve reports whether the handler aborted the response, as it would break a connection.
func (w *recorder) serve(handler http.Handler, h *http.Request) (aborted bool) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(p)
		}
	}()
	handler.ServeHTTP(w, h)
	return false
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(code int) {
	if !w.wrote && code >= http.StatusOK {
		w.code, w.wrote = code, true
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// roundTrip is a function as http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(h *http.Request) (*http.Response, error) { return f(h) }
