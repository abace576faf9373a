// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS4_ARequestThatIsNeverAnsweredIsMadeAgain: a lost answer of any request does not keep an
// informer from a healthy API server.
func TestS4_ARequestThatIsNeverAnsweredIsMadeAgain(t *testing.T) {
	for name, swallowed := range map[string]answer{
		"all":                    hang,
		"a streamed list":        onMaps(hang),
		"a plain list":           onMaps(noStreaming(hang)),
		"a watch after the list": onWatch(noStreaming(hang)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
				api.Intercept(swallowed)
				f, stop := follow(t, api)
				defer stop()
				time.Sleep(time.Minute)
				if phase, why, _ := f.reported(); phase != hook.Failing || !strings.Contains(why, "not answered for 30s") {
					t.Errorf("after a minute it is %s: %s", phase, why)
				}
				api.Intercept(nil)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				time.Sleep(2 * time.Minute)
				if phase, why, _ := f.reported(); phase != hook.Syncing || !f.has("b") {
					t.Errorf("two minutes after the API server is well it is %s: %s", phase, why)
				}
			})
		})
	}
}

// TestS4_AnAnswerToARequestThatWasGivenUp: a watch that opens just when it is canceled ends with
// its informer.
func TestS4_AnAnswerToARequestThatWasGivenUp(t *testing.T) {
	for name, of := range map[string]func(answer) answer{
		"a streamed list":        func(a answer) answer { return onWatch(a) },
		"a watch after the list": func(a answer) answer { return onWatch(noStreaming(a)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
				var late sync.Once
				api.Intercept(of(func(*sim.Request) (*http.Response, error) {
					late.Do(func() { time.Sleep(2*time.Minute + time.Second) })
					return nil, nil
				}))
				f, stop := follow(t, api)
				time.Sleep(3 * time.Minute)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				synctest.Wait()
				testkit.Equal(t, f.has("b"), true, "it does not follow the API server")
				testkit.Equal(t, api.Watches(), 1)
				stop()
				testkit.Equal(t, api.Watches(), 0, "watches are open after the stop")
			})
		})
	}
}
