// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestS4_S5_MissingAPIDelaysNoOther: an API that is not served delays no other, and its state is
// visible. Whenever it appears, it is synced within 5 seconds (S5).
func TestS4_S5_MissingAPIDelaysNoOther(t *testing.T) {
	for wait := 10 * time.Minute; wait < 10*time.Minute+4*time.Second; wait += 250 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.ConfigMaps)
			c, told := newCache(t, api)
			maps, deployments := cache.For[*corev1.ConfigMap](c), cache.For[*appsv1.Deployment](c)
			defer testkit.Start(t, c.Run)()
			testkit.Equal(t, synced(t, maps), 0, "the other informer took")
			time.Sleep(wait)
			s := deployments.State()
			testkit.Equal(t, s.Phase, hook.Waiting)
			testkit.ErrorSatisfies(t, s.Err, meta.IsNoMatchError)
			testkit.Equal(t, time.Since(s.Since), wait)
			api.Serve(sim.Deployments)
			api.Put(sim.Deployments, testkit.Deployment("a"))
			testkit.AtMost(t, synced(t, deployments), 5*time.Second)
			synctest.Wait()
			testkit.Equal(t, testkit.Err(deployments.Get(t.Context(), testkit.Key("a"))), nil)
			testkit.Equal(t, deployments.State().Phase, hook.Synced)
			testkit.NoError(t, deployments.State().Err)
			testkit.Equal(t, told.take(), "waiting for its API, syncing", "the hook was told")
			if got := maps.State(); got.Phase != hook.Synced || time.Since(got.Since) < wait {
				t.Errorf("got %s since %s", got, got.Since)
			}
		})
	}
}

// TestS4_Failing: a refused request is visible in the state, delays no other informer, and is
// retried until it succeeds.
func TestS4_Failing(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		phase  hook.Phase
		reason string
	}{
		"watch forbidden": {forbid, hook.Failing, "no right to watch"},
		"list forbidden":  {noStreaming(forbid), hook.Failing, "no right to list"},
		"refused":         {refuse, hook.Failing, "connection refused"},
		"overloaded": {func(r *sim.Request) (*http.Response, error) {
			return overloaded(r, 1)
		}, hook.Failing, "slow down"},
		"broken": {func(r *sim.Request) (*http.Response, error) {
			return r.Fail(http.StatusInternalServerError, "boom")
		}, hook.Failing, "boom"},
		"overloaded in the stream": {func(r *sim.Request) (*http.Response, error) {
			if r.Streaming() {
				return r.Send(strings.Replace(addedEvent, "ConfigMap", "Secret", 1) + errorEvent(http.StatusTooManyRequests))
			}
			return overloaded(r, 1)
		}, hook.Failing, "slow down"},
		"expired without a version":  {func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusGone, "too old") }, hook.Failing, "too old"},
		"no JSON":                    {func(r *sim.Request) (*http.Response, error) { return r.Send("<html>") }, hook.Failing, "invalid character '<'"},
		"invalid, and not streaming": {noStreaming(func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusBadRequest, "what?") }), hook.Failing, "what?"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
				api.Intercept(only(sim.Secrets, c.answer))
				all, told := newCache(t, api)
				maps, secrets := cache.For[*corev1.ConfigMap](all), cache.For[*corev1.Secret](all)
				defer testkit.Start(t, all.Run)()
				testkit.Equal(t, synced(t, maps), 0, "the other informer took")
				time.Sleep(10 * time.Minute)
				s := secrets.State()
				testkit.Equal(t, s.Phase, c.phase)
				testkit.ErrorContains(t, s.Err, c.reason)
				testkit.Between(t, api.Count("", sim.Secrets), 600/3, 600+10)
				api.Intercept(nil)
				testkit.AtMost(t, synced(t, secrets), 5*time.Second)
				synctest.Wait()
				testkit.Equal(t, secrets.State().Phase, hook.Synced, secrets.State())
				if got := told.take(); !strings.HasPrefix(got, string(c.phase)) || !strings.HasSuffix(got, ", syncing") {
					t.Errorf("the hook was told: %s", got)
				}
			})
		})
	}
}

// TestS4_StopsAtOnce: a stop in any of these states takes no time and leaves no goroutine (the
// bubble would not end).
func TestS4_StopsAtOnce(t *testing.T) {
	for name, a := range map[string]answer{
		"refused":      refuse,
		"list refused": noStreaming(refuse),
		"forbidden":    forbid,
		"overloaded":   func(r *sim.Request) (*http.Response, error) { return overloaded(r, 3600) },
		"hangs":        hang,
		"list hangs":   noStreaming(hang),
		"watch hangs":  noStreaming(onWatch(hang)),
		"overloaded in the stream": func(r *sim.Request) (*http.Response, error) {
			return r.Send(addedEvent + errorEvent(http.StatusTooManyRequests))
		},
		"an endless list": onWatch(func(r *sim.Request) (*http.Response, error) { return r.SendAndHang(addedEvent) }),
		"ends at once":    func(r *sim.Request) (*http.Response, error) { return r.Send("") },
		"in the stream": func(r *sim.Request) (*http.Response, error) {
			return r.Send(errorEvent(http.StatusInternalServerError))
		},
		"discovery hangs":   hang,
		"discovery refused": refuse,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				if strings.HasPrefix(name, "discovery") {
					api.Intercept(a)
				} else {
					api.Intercept(only(sim.ConfigMaps, a))
				}
				c, _ := newCache(t, api)
				cache.For[*corev1.ConfigMap](c)
				stop := testkit.Start(t, c.Run)
				time.Sleep(10 * time.Minute)
				begin := time.Now()
				stop()
				testkit.Equal(t, time.Since(begin), 0, "stopping took")
			})
		})
	}
}

// overloaded answers 429 with a Retry-After.
func overloaded(r *sim.Request, seconds int32) (*http.Response, error) {
	return r.FailWith(metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "slow down",
		Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
	})
}

// TestS4_RetryAfter: a Retry-After is honored up to a limit, and is visible meanwhile.
func TestS4_RetryAfter(t *testing.T) {
	// Negative: for discovery.
	for asked, want := range map[int32]int{10: 61, 3600: 21, -10: 61, -3600: 21} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.ConfigMaps)
			if asked > 0 {
				api.Intercept(only(sim.ConfigMaps, func(r *sim.Request) (*http.Response, error) { return overloaded(r, asked) }))
			} else {
				api.Intercept(func(r *sim.Request) (*http.Response, error) { return overloaded(r, -asked) })
			}
			c, _ := newCache(t, api)
			maps := cache.For[*corev1.ConfigMap](c)
			defer testkit.Start(t, c.Run)()
			synctest.Wait()
			testkit.Equal(t, maps.State().Phase, hook.Failing, "at once")
			testkit.ErrorContains(t, maps.State().Err, "slow down", "at once")
			time.Sleep(10*time.Minute + time.Second)
			n := api.Count("", sim.ConfigMaps)
			if asked < 0 {
				n = len(api.Requests())
			}
			testkit.Equal(t, n, want, "requests in 10 minutes")
		})
	}
}

// TestS4_Starting: a starting API server is asked every second, even if it asks for a longer pause.
func TestS4_Starting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		api.Intercept(only(sim.ConfigMaps, func(r *sim.Request) (*http.Response, error) {
			return r.FailWith(metav1.Status{
				Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "starting",
				Details: &metav1.StatusDetails{RetryAfterSeconds: 5},
			})
		}))
		c, _ := newCache(t, api)
		cache.For[*corev1.ConfigMap](c)
		defer testkit.Start(t, c.Run)()
		time.Sleep(10*time.Second + time.Millisecond)
		testkit.Equal(t, api.Count("", sim.ConfigMaps), 11, "requests in 10 seconds")
	})
}

// TestRunJoinsLists: client-go does not wait for a running list when it stops. Run does.
func TestRunJoinsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		var ended bool
		api.Intercept(noStreaming(only(sim.ConfigMaps, func(r *sim.Request) (*http.Response, error) {
			_, err := r.Hang()
			time.Sleep(time.Second) // a slow transport
			ended = true
			return nil, err
		})))
		c, _ := newCache(t, api)
		cache.For[*corev1.ConfigMap](c)
		stop := testkit.Start(t, c.Run)
		time.Sleep(time.Minute)
		stop()
		testkit.Equal(t, ended, true, "Run returned before the list did")
	})
}

// TestS4_Undecodable: an undecodable object is named and left out. All others are kept current.
func TestS4_Undecodable(t *testing.T) {
	broken := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"data": int64(5)}}}
	broken.SetNamespace("default")
	broken.SetName("broken")
	for name, streaming := range map[string]bool{"streaming": true, "listing": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, sim.Secrets)
				api.Intercept(inJSON)
				if !streaming {
					api.Intercept(noStreaming(inJSON))
				}
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "1"))
				c, _ := newCache(t, api)
				maps, secrets := cache.For[*corev1.ConfigMap](c), cache.For[*corev1.Secret](c)
				defer testkit.Start(t, c.Run)()
				synced(t, maps)
				synced(t, secrets)
				api.Put(sim.ConfigMaps, broken.DeepCopy())
				api.Put(sim.ConfigMaps, testkit.ConfigMap("a", "2"))
				time.Sleep(10 * time.Minute)
				if list, err := maps.List(t.Context(), cache.ListOptions{}); len(leftOut(err)) != 1 || len(list) != 1 {
					t.Errorf("got %v, %v", list, err)
				}
				testkit.Equal(t, maps.State().Phase, hook.Synced)
				testkit.Equal(t, maps.State().BrokenCount, 1)
				testkit.Contains(t, maps.State().String(), "broken objects: 1, such as default/broken: it cannot be decoded: json:")
				testkit.Equal(t, secrets.State().Phase, hook.Synced, "the other", secrets.State())
				testkit.Equal(t, testkit.Must(maps.Get(t.Context(), testkit.Key("a"))).Data["data"], "2")
				if _, err := maps.Get(t.Context(), testkit.Key("broken")); err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "default/broken: it cannot be decoded: json") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

const addedEvent = `{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","resourceVersion":"1"}}}`

func errorEvent(code int32) string {
	reasons := map[int32]metav1.StatusReason{410: metav1.StatusReasonExpired, 429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError}
	return fmt.Sprintf(`{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","reason":%q,"message":"in the stream","code":%d}}`, reasons[code], code)
}

// TestS4_Pace: an API server that ends each stream at once is asked at most once a second.
func TestS4_Pace(t *testing.T) {
	const bookmark = `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"resourceVersion":"1"}}}`
	send := func(body string) answer {
		return onWatch(func(r *sim.Request) (*http.Response, error) { return r.Send(body) })
	}
	for name, a := range map[string]answer{
		"initial stream without an end": send(addedEvent),
		"initial stream with 410":       send(errorEvent(410)),
		"initial stream with 500":       send(errorEvent(500)),
		"nothing":                       send(""),
		"half an event":                 send(addedEvent[:20]),
		"watch with a bookmark":         noStreaming(send(bookmark)),
		"watch with 410":                noStreaming(send(errorEvent(410))),
		"watch with 500":                noStreaming(send(errorEvent(500))),
		"watch with nothing":            noStreaming(send("")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Intercept(a)
				c, _ := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				time.Sleep(10 * time.Minute)
				testkit.Between(t, api.Count("", sim.ConfigMaps), 20, 606)
				api.Intercept(nil)
				testkit.AtMost(t, synced(t, maps), time.Minute)
				time.Sleep(time.Minute)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				synctest.Wait()
				testkit.Equal(t, testkit.Err(maps.Get(t.Context(), testkit.Key("b"))), nil, "after the trouble")
			})
		})
	}
}

// TestBrokenStreaming: if streamed initial lists break, plain lists are used.
func TestBrokenStreaming(t *testing.T) {
	for name, body := range map[string]string{"ends": addedEvent, "ends at once": "", "fails": addedEvent + errorEvent(http.StatusInternalServerError)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps)
				api.Put(sim.ConfigMaps, testkit.ConfigMap("b"))
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Streaming() {
						return r.Send(body)
					}
					return nil, nil
				})
				c, _ := newCache(t, api)
				maps := cache.For[*corev1.ConfigMap](c)
				defer testkit.Start(t, c.Run)()
				testkit.Equal(t, synced(t, maps), 0, "synced after")
				api.Put(sim.ConfigMaps, testkit.ConfigMap("c"))
				synctest.Wait()
				testkit.Len(t, testkit.Must(maps.List(t.Context(), cache.ListOptions{})), 2)
			})
		})
	}
}

// TestStateOfUnknownType: all methods of a handle report a type that cannot be cached.
func TestStateOfUnknownType(t *testing.T) {
	c, _ := newCache(t, sim.NewServer())
	h := cache.For[*unstructured.Unstructured](c)
	testkit.Equal(t, h.State().Phase, hook.Failing)
	testkit.NotEqual(t, h.State().Err, nil)
	testkit.Equal(t, informerOf(h), nil)
	if _, err := h.Get(t.Context(), testkit.Key("a")); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}
