// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// A request that is in the network arrives even if its client is gone. Only the proxy's end stops
// it.
func TestDeliver(t *testing.T) {
	for name, c := range map[string]struct {
		deliver bool
		end     func(w *world, giveUp func())
		arrives bool
	}{
		"given up":              {false, func(_ *world, giveUp func()) { giveUp() }, false},
		"given up, delivered":   {true, func(_ *world, giveUp func()) { giveUp() }, true},
		"cut":                   {false, func(w *world, _ func()) { w.Cut(Match{}) }, false},
		"cut, delivered":        {true, func(w *world, _ func()) { w.Cut(Match{}) }, true},
		"down, to be delivered": {true, func(w *world, _ func()) { w.down() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived, whole atomic.Int32
			api := func(h *http.Request, body io.Writer) {
				arrived.Add(1)
				if sent, err := io.ReadAll(h.Body); err == nil && string(sent) == "body" {
					whole.Add(1)
				}
				writeAll(body, "hello")
			}
			inBubble(t, api, Options{}, func(w *world) {
				arrived.Store(0)
				whole.Store(0)
				hold := w.Add(Rule{Match: Match{Verbs: []string{"create"}}, Hold: true, Deliver: c.deliver})
				ctx, giveUp := context.WithCancel(w.t.Context())
				defer giveUp()
				result := make(chan error, 1)
				go func() {
					answer, err := w.do(ctx, "POST", pods)
					if err == nil {
						answer.Body.Close()
					}
					result <- err
				}()
				w.must(hold.WaitHeld(w.t.Context(), 1))
				c.end(w, giveUp)
				testkit.NotEqual(w.t, <-result, nil, "the client was answered")
				synctest.Wait()
				testkit.Equal(w.t, arrived.Load(), 0, "requests have arrived before they were let go")
				hold.Remove()
				synctest.Wait()
				if got, want := arrived.Load() == 1 && whole.Load() == 1, c.arrives; got != want {
					w.t.Errorf("it has arrived %d times, %d whole; want it to: %t", arrived.Load(), whole.Load(), want)
				}
				w.must(hold.WaitEnded(w.t.Context(), 1))
			})
		})
	}
}
