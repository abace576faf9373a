// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// busyFor answers 429 with a Retry-After of an hour to the requests that it selects.
func busyFor(api *sim.Server, is func(*sim.Request) bool) {
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if !is(r) {
			return nil, nil
		}
		return r.FailWith(metav1.Status{
			Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
			Details: &metav1.StatusDetails{RetryAfterSeconds: 3600},
		})
	})
}

// TestM3_ALongRetryAfterDelaysNoStop: nor does it hold the only worker. The key that got it is
// retried after a minute, if the API server asks for an hour.
func TestM3_ALongRetryAfterDelaysNoStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		put(api, "a")
		busyFor(api, func(r *sim.Request) bool { return r.Verb == "create" && r.Resource.Resource == "secrets" })
		m := newManager(api, elected)
		var mu sync.Mutex // guards the fields below
		var tried []time.Duration
		var other int
		reconciles := func() ([]time.Duration, int) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(tried), other
		}
		began := time.Now()
		configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
			mu.Lock()
			if key.Name != "a" {
				other++
				mu.Unlock()
				return controller.Result{}, nil
			}
			tried = append(tried, time.Since(began))
			mu.Unlock()
			typed, err := kubernetes.NewForConfigAndClient(m.Client().Config(), m.Client().HTTPClient())
			if err == nil {
				_, err = typed.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
			}
			return controller.Result{}, err
		})
		stop, result := start(t, m)
		testkit.Pass(59 * time.Second)
		put(api, "b")
		testkit.Pass(0)
		if tries, others := reconciles(); len(tries) != 1 || others != 1 {
			t.Errorf("after 59 s there were %d Reconciles of the key and %d of the other one", len(tries), others)
		}
		testkit.Pass(time.Minute)
		if tries, _ := reconciles(); len(tries) != 2 || tries[1]-tries[0] != time.Minute {
			t.Errorf("the Reconciles were at %v", tries)
		}
		testkit.Pass(2*time.Minute - time.Since(began)%time.Minute) // just after a further try
		stopped := time.Now()
		stop()
		ok(t, result())
		testkit.Equal(t, time.Since(stopped), 0, "the stop took")
		testkit.Equal(t, holder(api), "", "the Lease is held by")
	})
}

// TestL6_ALongRetryAfterCostsNoTerm: the requests of an elector are tried again in time.
func TestL6_ALongRetryAfterCostsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		d := &diary{}
		m := newManager(api, elected)
		m.AddLeaderOnly("leads", d.until("leading", 0))
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		busyFor(api, func(r *sim.Request) bool { return r.Resource.Resource == "leases" })
		testkit.Pass(5 * time.Second)
		api.Intercept(nil)
		testkit.Pass(time.Minute)
		d.want(t, "leading starts")
		stop()
		ok(t, result())
		testkit.Equal(t, holder(api), "", "the Lease is held by")
	})
}
