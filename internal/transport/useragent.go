// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"strings"
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

// sign names the controller in a request that has the configured user agent. client-go has put it
// there, into a request of its own: one with the caller's user agent may be the caller's own request,
// and is left alone.
func sign(req *http.Request, configured, controller string) {
	if own := req.Header["User-Agent"]; controller != "" && len(own) == 1 && own[0] == configured {
		req.Header["User-Agent"] = []string{UserAgentFor(configured, controller)}
	}
}
