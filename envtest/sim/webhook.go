// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"
)

// UseWebhooks calls all webhooks in process from now on: h receives each AdmissionReview and
// ConversionReview as a POST request. The request's URL is the webhook's url, or
// https://NAME.NAMESPACE.svc:PORT/PATH for a service. Certificates are not checked.
//
// Without UseWebhooks, or after UseWebhooks(nil), webhooks with a url are called over HTTPS with
// their caBundle, and those with a service fail. Sockets do not work in a synctest bubble, so tests
// in a bubble need UseWebhooks.
//
// h runs in the goroutine of the client whose request needs the webhook, without a lock: it may use
// the server. It should end with the request's context, which has the webhook's timeout.
func (s *Server) UseWebhooks(h http.Handler) {
	s.store.Lock()
	defer s.store.Unlock()
	s.webhooks.Handler = h
}
