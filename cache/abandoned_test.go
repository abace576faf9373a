// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/fakeapi"
)

// TestS4_ARequestThatIsNeverAnsweredIsMadeAgain: whichever it is, and whatever is in the way of the answer, it does not keep an
// informer from an API server that is well again.
func TestS4_ARequestThatIsNeverAnsweredIsMadeAgain(t *testing.T) {
	for name, swallowed := range map[string]answer{
		"all":                    hang,
		"a streamed list":        only(fakeapi.ConfigMaps, hang),
		"a plain list":           only(fakeapi.ConfigMaps, noStreaming(hang)),
		"a watch after the list": onWatch(noStreaming(hang)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fakeapi.New(fakeapi.ConfigMaps)
				api.Put(fakeapi.ConfigMaps, configMap("a"))
				api.Intercept(swallowed)
				c, _ := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				defer start(t, c)()
				time.Sleep(time.Minute)
				if s := maps.State(); s.Phase != hook.Failing || !strings.Contains(s.String(), "not answered for 30s") {
					t.Errorf("after a minute it is %s", s)
				}
				api.Intercept(nil)
				api.Put(fakeapi.ConfigMaps, configMap("b"))
				time.Sleep(2 * time.Minute)
				if s := maps.State(); s.Phase != hook.Synced {
					t.Errorf("two minutes after the API server is well it is %s", s)
				}
				if _, err := maps.Get(t.Context(), key("b")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestS4_AnAnswerToARequestThatWasGivenUp: a watch that opens in the moment in which its informer stops waiting for it ends with
// the informer.
func TestS4_AnAnswerToARequestThatWasGivenUp(t *testing.T) {
	for name, of := range map[string]func(answer) answer{
		"a streamed list":        func(a answer) answer { return onWatch(a) },
		"a watch after the list": func(a answer) answer { return onWatch(noStreaming(a)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fakeapi.New(fakeapi.ConfigMaps)
				api.Put(fakeapi.ConfigMaps, configMap("a"))
				var late sync.Once
				api.Intercept(of(func(*fakeapi.Request) (*http.Response, error) {
					late.Do(func() { time.Sleep(2*time.Minute + time.Second) })
					return nil, nil
				}))
				c, _ := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				stop := start(t, c)
				time.Sleep(3 * time.Minute)
				api.Put(fakeapi.ConfigMaps, configMap("b"))
				synctest.Wait()
				if _, err := maps.Get(t.Context(), key("b")); err != nil {
					t.Error(err)
				}
				if n := api.Watches(); n != 1 {
					t.Errorf("%d watches are open", n)
				}
				stop()
				if n := api.Watches(); n != 0 {
					t.Errorf("%d watches are open after the stop", n)
				}
			})
		})
	}
}
