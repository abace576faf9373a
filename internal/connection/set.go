// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/internal/run"
)

// Set has the connections of all clients of one rest.Config. It is safe for concurrent use.
type Set struct {
	custom bool   // the configuration has a transport of the user
	https  bool   // the API server's scheme
	ca     string // file, or empty
	token  *token // nil: none

	mu    sync.Mutex // guards the following
	pools map[http.RoundTripper]*Pool
	renew time.Duration // the shortest RenewDeadline, or 0
}

// NewSet returns the set of a configuration. It opens nothing. It reads the token file.
func NewSet(cfg *rest.Config) (*Set, error) {
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	s := &Set{custom: cfg.Transport != nil, https: u.Scheme == "https", pools: map[http.RoundTripper]*Pool{}}
	if len(cfg.CAData) == 0 {
		s.ca = cfg.CAFile
	}
	if cfg.BearerTokenFile != "" {
		s.token = newToken(cfg.BearerTokenFile)
	}
	return s, nil
}

// Over returns the pool that takes the place of client-go's transport. If base is the pool of
// another set, the new pool takes its place. A transport of the user stays as it is.
func (s *Set) Over(base http.RoundTripper) http.RoundTripper {
	if p, ok := base.(*Pool); ok {
		base = p.base
	}
	if s.custom {
		return base
	}
	model := Below[*http.Transport](base)
	if model == nil {
		return base
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pools[base]
	if p == nil {
		p = newPool(s, base, model, s.renew)
		s.pools[base] = p
	}
	return p
}

// Below returns the first round tripper of type T among rt and those that it wraps, or nil.
func Below[T http.RoundTripper](rt http.RoundTripper) (none T) {
	for {
		switch own := rt.(type) {
		case T:
			return own
		case utilnet.RoundTripperWrapper:
			rt = own.WrappedRoundTripper()
		default:
			return none
		}
	}
}

// RenewWithin tells the set below rt the RenewDeadline of an elector that uses it. The shortest one
// counts.
func RenewWithin(rt http.RoundTripper, deadline time.Duration) {
	if p := Below[*Pool](rt); p != nil {
		p.set.renewWithin(deadline)
	}
}

func (s *Set) renewWithin(deadline time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renew != 0 && s.renew <= deadline {
		return
	}
	s.renew = deadline
	for _, p := range s.pools {
		p.renewWithin(deadline)
	}
}

// Disconnect closes the connections that are idle. A request leaves an HTTP/2 connection only some
// time after its end, so Disconnect repeats this until none is open, or ctx ends.
func (s *Set) Disconnect(ctx context.Context) {
	const first, most = 100 * time.Microsecond, 10 * time.Millisecond
	for wait := first; s.closeIdle(); wait = min(2*wait, most) {
		if run.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// closeIdle reports whether a connection is open.
func (s *Set) closeIdle() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		open = p.closeIdle() || open
	}
	return open
}
