// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// dropBookmarks removes the bookmarks from the watches that start from now on, except for the end
// of a streamed list.
func dropBookmarks(api *sim.Server) {
	api.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
		// The body is JSON, a line for each event. The parameters stay: a watch for metadata
		// accepts "application/json;as=PartialObjectMetadata".
		h.Header.Set("Accept", strings.ReplaceAll(h.Header.Get("Accept"), runtime.ContentTypeProtobuf, runtime.ContentTypeJSON))
		answer, err := next.RoundTrip(h)
		if err == nil {
			answer.Body = &withoutBookmarks{Closer: answer.Body, events: bufio.NewReader(answer.Body)}
		}
		return answer, err
	}})
}

// withoutBookmarks is the body of a watch in JSON, with one event in a line.
type withoutBookmarks struct {
	io.Closer

	events *bufio.Reader
	event  []byte // its unread rest
}

func (b *withoutBookmarks) Read(p []byte) (int, error) {
	for len(b.event) == 0 {
		event, err := b.events.ReadBytes('\n')
		if len(event) == 0 {
			return 0, err
		}
		if !bytes.Contains(event, []byte(`"BOOKMARK"`)) || bytes.Contains(event, []byte("initial-events-end")) {
			b.event = event
		}
	}
	n := copy(p, b.event)
	b.event = b.event[n:]
	return n, nil
}
