// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestM1_AStreamGoesOnWithinTheGraceTime: a handler that writes now and then, to a client that
// reads at once, continues during a stop until the grace time ends.
func TestM1_AStreamGoesOnWithinTheGraceTime(t *testing.T) {
	for _, proto := range []int{1, 2} {
		for _, sent := range []string{"", "body"} {
			t.Run(fmt.Sprintf("HTTP/%d, body %q", proto, sent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, s, _, server := slowable(t, nil)
					s.Handle("/stream", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.ReadAll(r.Body)
						for i := range 6 {
							select {
							case <-time.After(time.Second):
							case <-r.Context().Done():
								return
							}
							fmt.Fprintf(w, "part %d;", i)
							if http.NewResponseController(w).Flush() != nil {
								return
							}
						}
					}))
					stop, result := start(t, m)
					testkit.Pass(time.Second)
					c := server.client(t)
					if proto == 1 {
						c = plain(c)
						t.Cleanup(c.CloseIdleConnections)
					}
					timer := time.AfterFunc(1500*time.Millisecond, stop)
					defer timer.Stop()
					resp, err := c.Post("https://x/stream", "text/plain", strings.NewReader(sent))
					testkit.NoError(t, err)
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					testkit.Count(t, string(body), "part", 6)
					ok(t, err)
					ok(t, result())
				})
			})
		}
	}
}
