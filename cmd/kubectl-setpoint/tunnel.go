// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// tunnel is a port-forward to one Pod. It makes connections without a listener on this machine,
// which other users of the machine could use. So the error text of the kubelet reaches the caller.
type tunnel struct {
	config    *rest.Config
	rest      rest.Interface
	namespace string
	pod       string
	port      int

	mu   sync.Mutex            // guards the rest
	conn httpstream.Connection // nil before connect
	made int                   // connections
}

// connect opens the tunnel if it is not open. It returns at the end of ctx.
func (t *tunnel) connect(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		return nil
	}
	type result struct {
		conn httpstream.Connection
		err  error
	}
	// The dialer for SPDY may ignore ctx while it waits for an answer. If so, the goroutine ends
	// with the process.
	done := make(chan result)
	go func() {
		conn, err := t.dial(ctx)
		select {
		case done <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close() // too late
			}
		}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return t.explain(r.err)
		}
		t.conn = r.conn
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dial uses a WebSocket, and SPDY if the API server or a proxy does not support that, as kubectl
// does.
func (t *tunnel) dial(ctx context.Context) (httpstream.Connection, error) {
	config := rest.CopyConfig(t.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return next.RoundTrip(r.WithContext(ctx)) })
	})
	target := t.rest.Post().Resource("pods").Namespace(t.namespace).Name(t.pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	bySPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	byWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, config)
	if err != nil {
		return nil, err
	}
	var refusal error // only the WebSocket's error has a status
	dialer := portforward.NewFallbackDialerForStreaming(byWebSocket, bySPDY, func(err error) bool {
		if failure, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
			refusal = failure.Cause
		}
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil && apierrors.ReasonForError(refusal) != metav1.StatusReasonUnknown {
		return nil, refusal
	}
	if err == nil && protocol != portforward.PortForwardProtocolV1Name {
		_ = conn.Close()
		return nil, fmt.Errorf("port-forward: the API server speaks the protocol %q, not %s", protocol, portforward.PortForwardProtocolV1Name)
	}
	return conn, err
}

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// explain names the missing right.
func (t *tunnel) explain(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not forward ports; grant the verbs create and get on pods/portforward in the namespace %s", t.namespace)
	case apierrors.IsUnauthorized(err):
		return errors.New("the API server does not accept your credentials for port-forward; log in again")
	}
	return fmt.Errorf("port-forward: %w", err)
}

// DialContext is for http.Transport. It makes a connection to the port of the Pod.
func (t *tunnel) DialContext(context.Context, string, string) (net.Conn, error) {
	t.mu.Lock()
	over := t.conn
	t.made++
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(t.port))
	header.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(t.made))
	t.mu.Unlock()
	if over == nil {
		return nil, net.ErrClosed
	}
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, err := over.CreateStream(header)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := over.CreateStream(header)
	if err != nil {
		_ = failure.Reset()
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	c := &forwarded{port: t.port, data: data, failure: failure, ended: make(chan struct{})}
	go c.readFailure()
	return c, nil
}

func (t *tunnel) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil {
		_ = t.conn.Close() // resets its streams
		t.conn = nil
	}
}

// forwarded is a connection through a tunnel.
type forwarded struct {
	port          int
	data, failure httpstream.Stream
	ended         chan struct{} // closed at the end of failure; text is set then
	text          string
}

// readFailure reads the kubelet's error text. Close joins it.
func (c *forwarded) readFailure() {
	defer close(c.ended)
	text, _ := io.ReadAll(io.LimitReader(c.failure, mostError)) // ended by a reset, or complete
	c.text = strings.TrimSpace(string(text))
	_, _ = io.Copy(io.Discard, c.failure) // unread data would block the other streams
}

// Read implements net.Conn.
func (c *forwarded) Read(to []byte) (int, error) {
	n, err := c.data.Read(to)
	if err == nil {
		return n, nil
	}
	<-c.ended
	if c.text != "" {
		return n, &forwardError{c.port, c.text}
	}
	return n, err
}

// Write implements net.Conn.
func (c *forwarded) Write(from []byte) (int, error) { return c.data.Write(from) }

// Close implements net.Conn.
func (c *forwarded) Close() error {
	_ = c.data.Reset() // only its own side can fail, which is over
	_ = c.failure.Reset()
	<-c.ended
	return nil
}

// LocalAddr implements net.Conn.
func (*forwarded) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements net.Conn.
func (*forwarded) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline implements net.Conn. http.Transport ends requests with Close.
func (*forwarded) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*forwarded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*forwarded) SetWriteDeadline(time.Time) error { return nil }

// forwardError is the kubelet's reason for which it did not connect to the port.
type forwardError struct {
	port int
	text string
}

// Error implements error.
func (e *forwardError) Error() string {
	if strings.Contains(e.text, "connection refused") {
		return fmt.Sprintf("nothing listens on port %d of the pod's loopback interface; add the debug endpoints to the operator (package debug), or set --port", e.port)
	}
	return "port-forward: " + e.text
}
