// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestM3_AHungLeaseRequestAndFailingEvents: together they take no longer than the grace time, and
// another replica leads when the Lease has expired.
func TestM3_AHungLeaseRequestAndFailingEvents(t *testing.T) {
	for how, fail := range eventsFail {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases, eventsResource)
				r := &replicas{t: t, api: api, began: map[string]time.Time{}, dropped: map[string]int{}}
				line := newDeaf(api)
				stopA, resultA := r.start("a", line)
				testkit.Pass(3 * time.Second)
				stopB, resultB := r.start("b", api)
				testkit.Pass(time.Minute)
				api.Intercept(func(q *sim.Request) (*http.Response, error) {
					if q.Resource.Resource == eventsResource.Name {
						return fail(q)
					}
					return nil, nil
				})
				line.on.Store(true)
				testkit.Pass(3 * time.Second)
				stopped := time.Now()
				stopA()
				wantParts(t, resultA(), "a request for the Lease default/operator has not returned since")
				testkit.AtMost(t, time.Since(stopped), 28*time.Second)
				testkit.Pass(20 * time.Second)
				testkit.Equal(t, r.began["b"].IsZero(), false)
				testkit.AtMost(t, r.began["b"].Sub(stopped), 18*time.Second)
				line.mend()
				testkit.Pass(time.Second)
				testkit.Equal(t, holder(api), "b", "after the late requests, leads")
				api.Intercept(nil)
				stopB()
				ok(t, resultB())
			})
		})
	}
}

// TestL4_ALongRetryAfterOfARelease delays neither the stop nor the next leader for longer than the
// Lease lasts.
func TestL4_ALongRetryAfterOfARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		var led time.Time
		a, b := newManager(api, elected), newManager(api, elected)
		a.AddLeaderOnly("leads", (&diary{}).until("leading", 0))
		b.AddLeaderOnly("leads", func(ctx context.Context) error {
			led = time.Now()
			<-ctx.Done()
			return nil
		})
		stopA, resultA := start(t, a)
		testkit.Pass(time.Second)
		stopB, resultB := start(t, b)
		testkit.Pass(time.Minute)
		busyFor(api, func(r *sim.Request) bool { return r.Verb == "update" && r.Resource.Resource == "leases" })
		stopped := time.Now()
		stopA()
		_ = resultA()
		testkit.AtMost(t, time.Since(stopped), 10*time.Second)
		testkit.Pass(5 * time.Second)
		api.Intercept(nil)
		testkit.Pass(20 * time.Second)
		testkit.Equal(t, led.IsZero(), false)
		testkit.AtMost(t, led.Sub(stopped), 20*time.Second)
		stopB()
		ok(t, resultB())
	})
}

// TestInformers_ARetryAfterOfAList: neither a long nor an unreadable Retry-After parks an informer.
func TestInformers_ARetryAfterOfAList(t *testing.T) {
	for _, after := range []string{"3600", "Fri, 31 Dec 2999 23:59:59 GMT", "soon", "-1", "99999999999999999999"} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				put(api, "a")
				var asked, reconciled atomic.Int32
				var over atomic.Bool
				line := roundTripper(func(r *http.Request) (*http.Response, error) {
					answer, err := api.RoundTrip(r)
					if err != nil || over.Load() || !strings.Contains(r.URL.Path, "/configmaps") {
						return answer, err
					}
					asked.Add(1)
					_ = answer.Body.Close()
					answer.StatusCode, answer.Status, answer.Body = 429, "429 Too Many Requests", http.NoBody
					answer.Header.Set("Retry-After", after)
					return answer, nil
				})
				m := newManager(line, elected)
				configMaps(m, "website", func(context.Context, types.NamespacedName) (controller.Result, error) {
					reconciled.Add(1)
					return controller.Result{}, nil
				})
				stop, result := start(t, m)
				testkit.Pass(30 * time.Second)
				testkit.AtMost(t, asked.Load(), 40)
				over.Store(true)
				testkit.Pass(70 * time.Second)
				testkit.Equal(t, reconciled.Load(), 1)
				stop()
				ok(t, result())
			})
		})
	}
}
