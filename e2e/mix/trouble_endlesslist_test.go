// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/fault"
)

// endlessList is an API server that does not announce the end of a streamed initial list. The
// replica is started again, so that it lists. It reports this 30 s after the first later event,
// unless its process ends before: then there was no effect.
type endlessList struct{}

func (endlessList) name() string { return "endless list" }
func (endlessList) line() string { return "an informer is failing" }

func (e endlessList) strike(w *world, r *rand.Rand) int {
	one := w.some(r)
	var dropped atomic.Int64
	f := w.plane.add(fault.Rule{Match: fault.Match{Config: one.cfg, Verbs: []string{"watch"}, Resources: []string{"boards", "configmaps", "secrets"}},
		Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
			streamed := h.URL.Query().Get("sendInitialEvents") != ""
			if streamed {
				// A watch in protobuf has no lines. One of metadata asks for a conversion.
				h.Header.Set("Accept", strings.ReplaceAll(strings.Split(h.Header.Get("Accept"), ",")[0], "vnd.kubernetes.protobuf", "json"))
			}
			answer, err := next.RoundTrip(h)
			if err == nil && streamed {
				answer.Body = &withoutEnd{body: answer.Body, lines: bufio.NewReader(answer.Body), dropped: &dropped}
			}
			return answer, err
		}})
	one.restart()
	w.plane.pause(between(r, time.Minute, 3*time.Minute))
	f.Remove()
	// Ordinary bookmarks, which are later events, come each minute.
	for began := time.Now(); dropped.Load() > 0 && time.Since(began) < 100*time.Second; <-time.After(time.Second) {
		if w.log.has(one.id, e.line()) {
			return int(dropped.Load())
		}
	}
	return 0
}

// withoutEnd leaves out the bookmark at the end of an initial list, in JSON.
type withoutEnd struct {
	body    io.Closer
	lines   *bufio.Reader
	rest    string
	dropped *atomic.Int64
}

func (w *withoutEnd) Read(b []byte) (int, error) {
	for w.rest == "" {
		line, err := w.lines.ReadString('\n')
		if strings.Contains(line, "initial-events-end") {
			w.dropped.Add(1)
			continue
		}
		if w.rest = line; line == "" && err != nil {
			return 0, err
		}
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *withoutEnd) Close() error { return w.body.Close() }
