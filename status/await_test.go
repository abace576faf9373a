// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/status"
)

var (
	served = sim.Resource{Group: gauges.Group, Version: gauges.Version, Kind: "Gauge", Name: "gauges", Namespaced: true}
	oil    = types.NamespacedName{Namespace: "default", Name: "oil"}
)

// withCache runs test in a bubble with a running cache of a fake API server.
func withCache(t *testing.T, test func(t *testing.T, api *sim.Server, c *cache.Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(served, sim.Deployments)
		cl, err := client.New(api.Config(), client.Options{Scheme: newScheme()})
		testkit.NoError(t, err)
		c := cache.New(cl, cache.Options{})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			stop()
			testkit.Equal(t, <-ended, nil)
		}()
		test(t, api, c)
	})
}

// awaiting calls Await on another goroutine and waits until it blocks or has returned.
func awaiting(ctx context.Context, h *cache.Handle[*Gauge], goals ...status.Goal) <-chan error {
	result := make(chan error, 1)
	ctx, stop := context.WithTimeout(ctx, time.Hour)
	go func() {
		defer stop()
		g, err := status.Await(ctx, h, oil, goals...)
		if err == nil && g.Name != "oil" {
			err = errors.New("another object")
		}
		result <- err
	}()
	synctest.Wait()
	return result
}

func condition(conditionType string, is metav1.ConditionStatus, observed int64) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: is, Reason: "R", Message: "m", ObservedGeneration: observed}
}

// put stores the gauge as another client. The fake API server counts generations itself, so the
// level must change with the generation.
func put(t *testing.T, api *sim.Server, generation, observed int64, conditions ...metav1.Condition) {
	t.Helper()
	g := gauge(0, conditions...)
	g.UID, g.ResourceVersion, g.Spec.Level, g.Status.ObservedGeneration = "", "", int(generation), observed
	if got := api.Put(served, g).GetGeneration(); got != generation {
		t.Fatalf("the generation is %d, not %d", got, generation)
	}
}

func TestAwait_WaitsForCurrentConditions(t *testing.T) {
	withCache(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		h := cache.For[*Gauge](c)
		result := awaiting(t.Context(), h, status.True("Ready"), status.False("Dirty"))
		pending := func(why string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-result:
				t.Fatalf("%s: Await returned %v", why, err)
			default:
			}
		}
		pending("no object")
		put(t, api, 1, 0)
		pending("no conditions")
		put(t, api, 1, 1, condition("Ready", "False", 1), condition("Dirty", "False", 1))
		pending("not ready")
		put(t, api, 1, 1, condition("Ready", "True", 1))
		pending("a condition is missing")
		put(t, api, 2, 2, condition("Ready", "True", 1), condition("Dirty", "False", 2))
		pending("a condition is outdated")
		put(t, api, 2, 1, condition("Ready", "True", 0), condition("Dirty", "False", 0))
		pending("the status is outdated")
		put(t, api, 2, 2, condition("Ready", "True", 3), condition("Dirty", "False", 2))
		pending("a condition is of a later generation")
		put(t, api, 2, 3, condition("Ready", "True", 0), condition("Dirty", "False", 0))
		pending("the status is of a later generation")
		put(t, api, 2, 2, condition("Ready", "True", 2), condition("Dirty", "False", 2))
		testkit.Equal(t, <-result, nil)
	})
}

// TestAwait_NamesALaterGeneration: such a status was copied from another object, or is a mistake.
func TestAwait_NamesALaterGeneration(t *testing.T) {
	withCache(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		put(t, api, 1, 7, condition("Ready", "True", 7))
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		_, err := status.Await(ctx, cache.For[*Gauge](c), oil, status.True("Ready"))
		wants(t, err, "its status is of generation 7, not 1; Ready=True (R: m) of generation 7, not 1: ")
	})
}

// TestAwait_SeesWhatWasWrittenBefore: the cache still shows the last generation as ready.
func TestAwait_SeesWhatWasWrittenBefore(t *testing.T) {
	withCache(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		h := cache.For[*Gauge](c)
		put(t, api, 1, 1, condition("Ready", "True", 1))
		testkit.NoError(t, <-awaiting(t.Context(), h, status.True("Ready")))
		// Keep the informer at work, so that its watch lags.
		testkit.NoError(t, h.WaitForSync(t.Context()))
		api.Lag(time.Minute)
		put(t, api, 2, 1, condition("Ready", "True", 1))
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		_, err := status.Await(ctx, h, oil, status.True("Ready"))
		wants(t, err, "await Ready=True of Gauge", "default/oil: its status is of generation 1, not 2; Ready=True (R: m) of generation 1, not 2: ", "deadline exceeded")
		testkit.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAwait_AnObjectThatDoesNotExist(t *testing.T) {
	withCache(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		h := cache.For[*Gauge](c)
		gone := errors.New("the test is over")
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Hour, gone)
		defer stop()
		_, err := status.Await(ctx, h, oil, status.True("Ready"))
		if wants(t, err, `gauges.status.setpoint.dev "oil" not found`); !apierrors.IsNotFound(err) || !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		// One that was deleted before the call may come back.
		put(t, api, 1, 0)
		synctest.Wait()
		api.Remove(served, "default", "oil")
		result := awaiting(t.Context(), h, status.True("Ready"))
		put(t, api, 1, 1, condition("Ready", "True", 1))
		testkit.Equal(t, <-result, nil)
		// One that is deleted meanwhile ends the wait.
		result = awaiting(t.Context(), h, status.True("Full"))
		api.Remove(served, "default", "oil")
		if err := <-result; !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "it was deleted") {
			t.Error(err)
		}
	})
}

// TestAwait_OtherKinds: conditions of another type, and unstructured objects.
func TestAwait_OtherKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Deployments)
		cl, err := client.New(api.Config(), client.Options{})
		testkit.NoError(t, err)
		c := cache.New(cl, cache.Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			stop()
			<-ended
		}()
		web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "oil"}}
		web.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}
		web.Status.ObservedGeneration = 1
		api.Put(sim.Deployments, web)
		testkit.Equal(t, testkit.Must(status.Await(ctx, cache.For[*appsv1.Deployment](c), oil, status.True("Available"))).Name, "oil")
		kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
		raw := cache.ForScope[*unstructured.Unstructured](c, cache.Scope{Kind: kind})
		testkit.Equal(t, testkit.Must(status.Await(ctx, raw, oil, status.True("Available"))).GetName(), "oil")
	})
}

func TestAwait_Mistakes(t *testing.T) {
	withCache(t, func(t *testing.T, api *sim.Server, c *cache.Cache) {
		h := cache.For[*Gauge](c)
		_, err := status.Await(t.Context(), h, oil)
		wants(t, err, "await "+h.String()+" default/oil: no goals are given; name one")
		water := cache.ForScope[*Gauge](c, cache.Scope{Names: cache.NewSet(types.NamespacedName{Namespace: "default", Name: "water"})})
		_, err = status.Await(t.Context(), water, oil, status.True("Ready"))
		wants(t, err, "await Ready=True", "default/oil", "is outside")
		api.Withdraw(served)
		scheme := cache.ForScope[*Gauge](c, cache.Scope{Namespaces: cache.NewSet("other")})
		_, err = status.Await(t.Context(), scheme, types.NamespacedName{Namespace: "other", Name: "oil"}, status.True("Ready"))
		wants(t, err, "does not serve Gauge")
		h.Release()
		_, err = status.Await(t.Context(), h, oil, status.True("Ready"))
		wants(t, err, "was released")
	})
}
