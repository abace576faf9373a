// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// Pool sends requests over connections of its own. Its base never dials.
type Pool struct {
	set   *Set
	base  http.RoundTripper // client-go's, which stops its work when it is collected
	model *http.Transport   // below base
	ca    *file             // nil: the CA does not come from a file

	lanes atomic.Pointer[lanes] // the current ones

	mu      sync.Mutex // guards the following, and changes of lanes
	renew   time.Duration
	pem     []byte         // in the CA file, as used
	roots   *x509.CertPool // of pem, or nil: as in the model
	retired []*lane        // that may have connections
}

// lanes are the transports of one CA and one RenewDeadline.
type lanes struct{ requests, leases *lane }

func newPool(s *Set, base http.RoundTripper, model *http.Transport, renew time.Duration) *Pool {
	p := &Pool{set: s, base: base, model: model, renew: renew}
	if ca := newFile(s.ca); ca != nil && model.TLSClientConfig != nil && model.TLSClientConfig.RootCAs != nil {
		pem, _ := ca.load(time.Time{})
		if roots := rootsOf(pem); roots != nil && roots.Equal(model.TLSClientConfig.RootCAs) {
			p.ca, p.pem = ca, pem
		}
	}
	p.replaceLocked()
	return p
}

// WrappedRoundTripper returns client-go's transport. Clients that upgrade connections look there
// for the dialer and the TLS configuration.
func (p *Pool) WrappedRoundTripper() http.RoundTripper { return p.base }

// CloseIdleConnections closes idle connections.
func (p *Pool) CloseIdleConnections() { p.closeIdle() }

// RoundTrip implements http.RoundTripper. It sends a request again if the server refused its token
// or the program refused the server's certificate, and the file has another one by now.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	if p.ca != nil && !p.ca.readAfter(began.Add(-readEvery)) {
		p.readCA(began)
	}
	l := p.laneOf(req)
	sent := p.set.token.current(req, began)
	resp, err := l.roundTrip(sent)
	if again := p.again(l, began, sent, resp, err); again != nil {
		resp, err = p.laneOf(again).roundTrip(again)
	}
	if err == nil {
		resp.Request = req
	}
	return resp, err
}

// again returns the request to send instead, or nil. It then has closed the answer.
func (p *Pool) again(l *lane, began time.Time, sent *http.Request, resp *http.Response, err error) *http.Request {
	next := sent
	switch {
	case err != nil:
		if p.ca == nil || !refusedCertificate(err) {
			return nil
		}
		if p.readCA(began); p.laneOf(sent) == l {
			return nil
		}
	case resp.StatusCode != http.StatusUnauthorized:
		return nil
	default:
		if next = p.set.token.renewed(sent, began); next == nil {
			return nil
		}
	}
	if sent.Body != nil && sent.Body != http.NoBody {
		if sent.GetBody == nil {
			return nil
		}
		body, err := sent.GetBody()
		if err != nil {
			return nil
		}
		repeated := *next
		next, repeated.Body = &repeated, body
	}
	if resp != nil {
		io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) //nolint:errcheck // to use the connection again
		resp.Body.Close()
	}
	return next
}

func refusedCertificate(err error) bool {
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &certificate) || errors.As(err, &unknown)
}

func (p *Pool) laneOf(req *http.Request) *lane {
	current := p.lanes.Load()
	if leases.MatchString(req.URL.Path) {
		return current.leases
	}
	return current.requests
}

var leases = regexp.MustCompile(`/apis/coordination\.k8s\.io/[^/]+/(namespaces/[^/]+/)?leases(/[^/]+)?$`)

// readCA reads the CA file, unless it was read after since. If it has changed, new requests use
// new lanes.
func (p *Pool) readCA(since time.Time) {
	pem, err := p.ca.load(since)
	if err != nil {
		return // the file may be half written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	roots := rootsOf(pem)
	if roots == nil || bytes.Equal(pem, p.pem) {
		return
	}
	p.pem, p.roots = pem, roots
	p.replaceLocked()
}

func rootsOf(pem []byte) *x509.CertPool {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil
	}
	return roots
}

func (p *Pool) renewWithin(deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew = deadline
	p.replaceLocked()
}

// replaceLocked makes new lanes. Requests in flight stay on the old ones.
func (p *Pool) replaceLocked() {
	made := &lanes{
		requests: newLane(p.model, p.set.https, limitsOf(p.renew, 2)),
		leases:   newLane(p.model, p.set.https, limitsOf(p.renew, 4)),
	}
	made.leases.impatient = true
	if p.roots != nil {
		made.requests.transport.TLSClientConfig.RootCAs = p.roots
		made.leases.transport.TLSClientConfig.RootCAs = p.roots
	}
	if old := p.lanes.Swap(made); old != nil {
		p.retired = append(p.retired, old.requests, old.leases)
		p.closeRetiredLocked()
	}
}

func (p *Pool) closeRetiredLocked() {
	kept := p.retired[:0]
	for _, l := range p.retired {
		if l.closeIdle() {
			kept = append(kept, l)
		}
	}
	clear(p.retired[len(kept):])
	p.retired = kept
}

// closeIdle reports whether a connection is open.
func (p *Pool) closeIdle() (open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeRetiredLocked()
	current := p.lanes.Load()
	open = current.requests.closeIdle()
	return current.leases.closeIdle() || open || len(p.retired) > 0
}
