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
func (i *inbox) RoundTrip(h *http.Request) (*http.Response, error) {
	if h.Body != nil {
		defer h.Body.Close()
	}
	if err := h.Context().Err(); err != nil {
		return nil, err
	}
	r := request.Parse(h)
	asked := requestOf(r)
	if intercept := i.received(asked); intercept != nil {
		if resp, err := intercept(asked); resp != nil || err != nil {
			return resp, err
		}
	}
	return i.api.Answer(r)
}

func (i *inbox) received(r *Request) func(*Request) (*http.Response, error) {
	i.store.Lock()
	defer i.store.Unlock()
	i.counts[kind{r.Verb, r.Resource}]++
	kept := *r
	kept.request = nil // its context and header would stay in memory, too
	if i.log = append(i.log, &kept); len(i.log) > keptRequests {
		i.log[0] = nil
		i.log = i.log[1:]
	}
	return i.intercept
}
