// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// lane is a transport, with the connections that it dialed.
type lane struct {
	dials

	transport *http.Transport
	connect   utilnet.DialFunc
	impatient bool // a request that times out closes its connection
}

func newLane(model *http.Transport, https bool, most limits) *lane {
	l := &lane{transport: model.Clone()}
	l.open = map[*conn]struct{}{}
	t := l.transport
	// Another copy of HTTP/2 may have configured the model, with connections and limits of its own.
	if t.TLSNextProto["h2"] != nil || t.ForceAttemptHTTP2 {
		l.bounded = https
		t.TLSNextProto, t.Protocols = nil, new(http.Protocols)
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: most.idle, PingTimeout: most.answer}
	}
	l.connect = t.DialContext
	if l.connect == nil {
		l.connect = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	t.DialContext = l.dial
	return l
}

// trip is a request on its way.
type trip struct {
	want

	lane    *lane
	upgrade bool     // over HTTP/1.1, whatever the server speaks
	conn    net.Conn // the last one
	trace   httptrace.ClientTrace
}

type tripKey struct{}

func (l *lane) roundTrip(req *http.Request) (*http.Response, error) {
	t := &trip{lane: l, upgrade: req.Header.Get("Upgrade") != ""}
	t.trace = httptrace.ClientTrace{GetConn: func(string) { l.wants(&t.want) }, GotConn: t.gotConn}
	ctx := context.WithValue(req.Context(), tripKey{}, t)
	resp, err := l.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &t.trace)))
	l.satisfy(&t.want)
	switch {
	case !l.impatient:
	case err != nil:
		t.giveUp(req)
	case !strings.Contains(req.URL.RawQuery, "watch="):
		resp.Body = &timed{ReadCloser: resp.Body, req: req, trip: t}
	}
	return resp, err
}

// dial is the DialContext of the transport, which gets the values of a request's context.
func (l *lane) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var w *want
	if t, ok := ctx.Value(tripKey{}).(*trip); ok {
		w = &t.want
	}
	c, err := l.begin(ctx, w)
	if err != nil {
		return nil, err
	}
	if c.Conn, err = l.connect(ctx, network, address); err != nil {
		l.failed(c)
		return nil, err
	}
	return c, nil
}

func (t *trip) gotConn(info httptrace.GotConnInfo) {
	t.conn = info.Conn
	t.lane.satisfy(&t.want)
	c := connBelow(info.Conn)
	if c == nil || c.taken.Swap(true) {
		return
	}
	t.lane.used(c)
	if secured, ok := info.Conn.(*tls.Conn); !t.upgrade && (!ok || secured.ConnectionState().NegotiatedProtocol != "h2") {
		t.lane.unbound()
	}
}

func connBelow(of net.Conn) *conn {
	for {
		switch own := of.(type) {
		case *conn:
			return own
		case *tls.Conn: // two, one in the other, through a proxy
			of = own.NetConn()
		default:
			return nil
		}
	}
}

// giveUp closes the connection of a request that had no answer in time. Other requests of the
// connection fail, too, so it is for connections of requests that can be sent again.
func (t *trip) giveUp(req *http.Request) {
	if !errors.Is(req.Context().Err(), context.DeadlineExceeded) {
		return
	}
	if c := connBelow(t.conn); c != nil {
		c.Close() // tls.Conn would wait until it has sent an alert
	}
}

// timed is the body of an answer that must arrive in time.
type timed struct {
	io.ReadCloser
	req  *http.Request
	trip *trip
}

// Read implements io.Reader.
func (b *timed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.trip.giveUp(b.req)
	}
	return n, err
}

// closeIdle reports whether a connection is open.
func (l *lane) closeIdle() (open bool) {
	l.transport.CloseIdleConnections()
	return l.some()
}
