// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/request"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/verbs"
)

// inbox receives the requests of clients.
type inbox struct {
	store *store.Store
	api   *verbs.API

	// The store's lock guards the fields below.
	log       []*Request // the newest ones
	counts    map[kind]int
	intercept func(*Request) (*http.Response, error)
}

// keptRequests is how many requests Server.Requests returns at most.
const keptRequests = 10_000

// kind is what Server.Count distinguishes.
type kind struct {
	verb     string
	resource schema.GroupVersionResource
}

// RoundTrip answers one request that the rules let through. It implements http.RoundTripper.
func (s *inbox) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Body != nil {
		defer h.Body.Close()
	}
	if err := h.Context().Err(); err != nil {
		return nil, err
	}
	r := request.Parse(h)
	asked := requestOf(r)
	if intercept := s.received(asked); intercept != nil {
		if resp, err := intercept(asked); resp != nil || err != nil {
			return resp, err
		}
	}
	return s.api.Answer(r)
}

func (s *inbox) received(r *Request) func(*Request) (*http.Response, error) {
	s.store.Lock()
	defer s.store.Unlock()
	s.counts[kind{r.Verb, r.Resource}]++
	kept := *r
	kept.request = nil // its context and header would stay in memory, too
	if s.log = append(s.log, &kept); len(s.log) > keptRequests {
		s.log[0] = nil
		s.log = s.log[1:]
	}
	return s.intercept
}
