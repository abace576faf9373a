// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestWatchLive_Resumes: watches that end lose and repeat nothing.
func TestWatchLive_Resumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Put(sim.ConfigMaps, testkit.ConfigMap("a"))
		maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
		var got []string
		var all sync.WaitGroup
		all.Go(func() {
			for event, err := range maps.WatchLive(t.Context(), client.ListOptions{Namespace: "default"}) {
				if err != nil {
					t.Error(err)
					break
				}
				got = append(got, string(event.Type)+" "+event.Object.Name)
				if event.Object.Name == "e" {
					break
				}
			}
		})
		for _, name := range []string{"b", "c", "d", "e"} {
			synctest.Wait() // the watch is open, or WatchLive waits for the second to end
			api.CutWatches()
			api.Put(sim.ConfigMaps, testkit.ConfigMap(name))
			if name == "c" {
				api.Remove(sim.ConfigMaps, "default", "a")
			} else {
				time.Sleep(90 * time.Second) // the API server sends a bookmark
			}
		}
		all.Wait()
		want := []string{"ADDED a", "BOOKMARK ", "ADDED b", "ADDED c", "DELETED a", "ADDED d", "ADDED e"}
		testkit.SlicesEqual(t, got, want)
		testkit.AtLeast(t, api.Count("watch", sim.ConfigMaps), 4)
		testkit.Equal(t, api.Watches(), 0)
	})
}

// TestWatchLive_TakesItsTime: at most one watch begins in a second, even if each ends at once.
func TestWatchLive_TakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Verb == "watch" {
				return r.Send("")
			}
			return nil, nil
		})
		maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+1)
		defer cancel()
		var last error
		for _, last = range maps.WatchLive(ctx, client.ListOptions{}) {
		}
		testkit.Equal(t, api.Count("watch", sim.ConfigMaps), 11)
		testkit.ErrorIs(t, last, context.DeadlineExceeded)
	})
}

// TestWatchLive_Ends: with the error that it cannot repair.
func TestWatchLive_Ends(t *testing.T) {
	cause := errors.New("seen enough")
	for what, tt := range map[string]struct {
		do   func(api *sim.Server, cancel context.CancelCauseFunc)
		want func(error) bool
	}{
		"the context": {
			func(_ *sim.Server, cancel context.CancelCauseFunc) { cancel(cause) },
			func(err error) bool { return errors.Is(err, cause) },
		},
		"too old a version": {
			func(api *sim.Server, _ context.CancelCauseFunc) {
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				api.Expire()
			},
			apierrors.IsResourceExpired,
		},
		"a request that fails": {
			func(api *sim.Server, _ context.CancelCauseFunc) {
				api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no") })
			},
			apierrors.IsForbidden,
		},
		"bad data": {
			func(api *sim.Server, _ context.CancelCauseFunc) {
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					return r.Send(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","data":7}}`)
				})
			},
			func(err error) bool { return apierrors.HasStatusCause(err, "ClientWatchDecoding") },
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var last error
				events := 0
				for _, err := range maps.WatchLive(ctx, client.ListOptions{}) {
					if last = err; err == nil {
						events++
						tt.do(api, cancel)
					}
				}
				testkit.Equal(t, tt.want(last), true)
				testkit.Equal(t, events, 1)
				synctest.Wait()
				testkit.Equal(t, api.Watches(), 0)
			})
		})
	}
}
