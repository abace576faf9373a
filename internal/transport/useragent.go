// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"strings"
	"sync"
	"unicode"
)

// UserAgentFor returns a user agent that names a controller.
func UserAgentFor(configured, controller string) string {
	return configured + " controller/" + strings.Map(func(r rune) rune {
		if r <= ' ' || r >= unicode.MaxASCII { // a header cannot have it
			return '_'
		}
		return r
	}, controller)
}

// agents are the user agents of controllers.
type agents struct {
	configured string

	mu     sync.RWMutex // guards what follows
	header map[string][]string
}

// maxAgents is for how many controllers a header is kept.
const maxAgents = 1000

// sign names the controller in a request that has the user agent of the configuration. client-go has put it there, into a
// request of its own: one with the caller's own user agent may be the caller's own request, and is left alone.
func (a *agents) sign(req *http.Request, controller string) {
	if own := req.Header["User-Agent"]; controller != "" && len(own) == 1 && own[0] == a.configured {
		req.Header["User-Agent"] = a.of(controller)
	}
}

// of returns a header that must not be changed.
func (a *agents) of(controller string) []string {
	a.mu.RLock()
	h := a.header[controller]
	a.mu.RUnlock()
	if h != nil {
		return h
	}
	h = []string{UserAgentFor(a.configured, controller)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.header == nil {
		a.header = map[string][]string{}
	}
	if len(a.header) < maxAgents {
		a.header[controller] = h
	}
	return h
}
