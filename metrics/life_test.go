// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// value returns the value of a counter or gauge, or the sum of a histogram, or -1 without such a
// series. The label values are in the order of the label names.
func value(t *testing.T, r prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	all, err := r.Gather()
	testkit.NoError(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && slices.Equal(valuesOf(m), labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			}
		}
	}
	return -1
}

func valuesOf(m *dto.Metric) []string {
	var values []string
	for _, l := range m.GetLabel() {
		values = append(values, l.GetValue())
	}
	return values
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		q, err := workqueue.New(workqueue.Options[string]{Name: "website", Hook: m})
		testkit.NoError(t, err)
		want := func(name string, n float64, labels ...string) {
			t.Helper()
			testkit.Equal(t, value(t, r, name, append([]string{"website"}, labels...)...), n, fmt.Sprintf("%s%v", name, labels))
		}
		for _, key := range []string{"a", "b", "a"} {
			q.Add(key)
		}
		time.Sleep(2 * time.Second)
		item, _ := q.Get(context.Background())
		time.Sleep(3 * time.Second)
		want("workqueue_adds_total", 2, "website")
		want("workqueue_depth", 1, "website", "0")
		want("workqueue_queue_duration_seconds", 2, "website")
		want("workqueue_longest_running_processor_seconds", 3, "website")
		want("workqueue_unfinished_work_seconds", 3, "website")
		want("setpoint_queue_keys", 1, "held")
		testkit.NoError(t, testkit.Err(item.Retry(errors.New("no"))))
		want("workqueue_work_duration_seconds", 3, "website")
		want("workqueue_retries_total", 1, "website")
		want("setpoint_queue_keys", 1, "waiting")
		_ = item.Done()
		want("setpoint_queue_misuses_total", 1)
		item, _ = q.Get(context.Background())
		q.ShutDown()
		_ = item.Done()
		testkit.Len(t, families(t, r), 0, "after the shutdown there")
	})
}

// TestOneNameTwice: a queue or controller keeps its series when an older one of the same name
// stops.
func TestOneNameTwice(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	stats := func() hook.QueueStats { return hook.QueueStats{Ready: 1, Longest: time.Second} }
	workers := func() hook.ControllerStats { return hook.ControllerStats{Workers: 2, Active: 1} }
	start := func(of string) {
		m.Send(&hook.QueueOpened{Queue: "website", Of: of, Stats: stats})
		m.Send(&hook.ControllerStarted{Controller: "website", Of: of, Stats: workers})
		m.Send(&hook.SourceStarted{Controller: "website", Source: "Kind(Website)"})
	}
	stop := func(of string) {
		m.Send(&hook.SourceStopped{Controller: "website", Source: "Kind(Website)"})
		m.Send(&hook.ControllerStopped{Controller: "website", Of: of})
		m.Send(&hook.QueueClosed{Queue: "website", Of: of})
	}
	use := func() {
		m.Send(&hook.QueueAdded{Queue: "website", Keys: 1})
		m.Send(&hook.QueueTaken{Queue: "website"})
		m.Send(&hook.QueueSettled{Queue: "website"})
		m.Send(&hook.QueueDelayed{Queue: "website"})
		m.Send(&hook.QueueDropped{Queue: "website", Why: "so", Keys: 1})
		m.Send(&hook.Reconciled{Controller: "website", Outcome: hook.Succeeded})
		m.Send(&hook.Awaited{Controller: "website", Took: 1})
		m.Send(&hook.Slow{Controller: "website"})
		m.Send(&hook.SourceDropped{Controller: "website", Source: "Kind(Website)", Reason: "f"})
		m.Send(&hook.HandlerFailed{Controller: "website", Source: "Kind(Website)"})
		m.Send(&hook.APIRequest{Controller: "website", Verb: "get"})
		m.Send(&hook.SkippedApply{Controller: "website"})
	}
	start("first")
	use()
	start("second")
	testkit.Equal(t, value(t, r, "workqueue_depth", "website", "website", ""), 2)
	testkit.Equal(t, value(t, r, "workqueue_longest_running_processor_seconds", "website", "website"), 1)
	testkit.Equal(t, value(t, r, "controller_runtime_max_concurrent_reconciles", "website"), 4)
	stop("first")
	use()
	for name, labels := range map[string][]string{
		"workqueue_adds_total": {"website", "website"}, "controller_runtime_reconcile_total": {"website", "success"},
		"setpoint_source_dropped_total": {"website", "f", "Kind(Website)"}, "setpoint_api_requests_total": {"<error>", "website", "", "get"},
	} {
		testkit.Equal(t, value(t, r, name, labels...), 2, name)
	}
	stop("second")
	use() // late calls
	testkit.Len(t, families(t, r), 0, "after the end there")
}

// TestM6_RemovedWithItsSeries: a removed controller leaves no series, and its successor starts at
// 0. The test uses a real manager with all hooks.
func TestM6_RemovedWithItsSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		api := sim.NewServer(sim.ConfigMaps, sim.Secrets, sim.Leases)
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		silent := slog.New(slog.DiscardHandler)
		mgr := manager.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, manager.Options{
			Name: "test", Logger: silent, Hook: m,
			LeaderElection: &leaderelection.Options{Lease: "operator", Namespace: "default"},
		})
		add := func(name string) *controller.Controller[types.NamespacedName] {
			c := controller.New(name, controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				_, err := client.For[*corev1.ConfigMap](mgr.Client()).GetLive(ctx, key)
				return controller.Result{}, err
			}), controller.Options{Workers: 2, Logger: silent})
			never := handler.Where(func(_, _ *corev1.ConfigMap) bool { return false })
			c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self()))
			c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self(), never))
			mgr.Add(c)
			return c
		}
		website := add("website")
		add("other")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mgr.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		for name, labels := range map[string][]string{
			"controller_runtime_reconcile_total": {"website", "success"}, "workqueue_adds_total": {"website", "website"},
			"setpoint_api_requests_total":   {"200", "website", "configmaps", "get"},
			"setpoint_informer_objects":     {"ConfigMap.v1", "", "packed"},
			"leader_election_master_status": {"operator"},
		} {
			testkit.Equal(t, value(t, r, name, labels...), 1, name)
		}
		testkit.Equal(t, value(t, r, "controller_runtime_max_concurrent_reconciles", "website"), 2, "workers")
		testkit.AtLeast(t, value(t, r, "rest_client_requests_total", "200", "sim.test", "PUT"), 20)
		testkit.Equal(t, mgr.Remove(t.Context(), website), nil)
		testkit.Len(t, having(t, r, "website"), 0, "the removed controller has left")
		testkit.Equal(t, value(t, r, "controller_runtime_reconcile_total", "other", "success"), 1, "the other has reconciled")
		add("website")
		time.Sleep(time.Minute)
		synctest.Wait()
		testkit.Equal(t, value(t, r, "controller_runtime_reconcile_total", "website", "success"), 1, "the next of its name has reconciled")
		cancel()
		testkit.Equal(t, <-done, nil)
		testkit.Equal(t, value(t, r, "leader_election_master_status", "operator"), 0, "the master status after the end")
		for _, of := range []string{"website", "other", "ConfigMap.v1"} {
			testkit.Len(t, having(t, r, of), 0, "at the end there")
		}
	})
}

// TestNamesThatAreNoUTF8: invalid names do not panic, do not share a series, and leave none.
func TestNamesThatAreNoUTF8(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(t, r)
	var ends []func()
	for _, name := range []string{"a\xff", "a\xfe"} {
		m.Send(&hook.QueueOpened{Queue: name, Of: name, Stats: func() hook.QueueStats { return hook.QueueStats{} }})
		m.Send(&hook.QueueAdded{Queue: name, Keys: 1})
		m.Send(&hook.ControllerStarted{Controller: name, Of: name, Stats: func() hook.ControllerStats { return hook.ControllerStats{} }})
		m.Send(&hook.SourceStarted{Controller: name, Source: "x\xff"})
		m.Send(&hook.SourceDropped{Controller: name, Source: "x\xff", Reason: "\xff"})
		m.Send(&hook.APIRequest{Controller: name, Verb: "get", Resource: "pods", Subresource: "\xff"})
		ends = append(ends, func() {
			m.Send(&hook.SourceStopped{Controller: name, Source: "x\xff"})
			m.Send(&hook.ControllerStopped{Controller: name, Of: name})
			m.Send(&hook.QueueClosed{Queue: name, Of: name})
		})
	}
	for _, name := range []string{`"a\xff"`, `"a\xfe"`} {
		testkit.Equal(t, value(t, r, "workqueue_adds_total", name, name), 1, name, "adds")
		testkit.Equal(t, value(t, r, "setpoint_api_requests_total", "<error>", name, `"pods/\xff"`, "get"), 1, name, "requests")
	}
	for _, end := range ends {
		end()
	}
	testkit.Len(t, families(t, r), 0, "left")
}

// answering answers every request with the status in its path.
type answering struct{}

// CloseIdleConnections closes nothing.
func (answering) CloseIdleConnections() {}

func (answering) RoundTrip(r *http.Request) (*http.Response, error) {
	status, _ := strconv.Atoi(path.Base(r.URL.Path))
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestM6_WhatNeverRanHasNoSeries: a controller that was removed before Run or disabled has no
// series.
func TestM6_WhatNeverRanHasNoSeries(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	mgr := manager.New(&rest.Config{Host: sim.Host}, manager.Options{Name: "test"})
	c := controller.New("website", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, nil
	}), controller.Options{Hook: m})
	mgr.Add(c)
	c.Queue().Add(types.NamespacedName{Name: "a"})
	testkit.Equal(t, mgr.Remove(t.Context(), c), nil)
	testkit.Len(t, families(t, r), 0)
}

// having returns the series that have this value in a label.
func having(t *testing.T, r prometheus.Gatherer, label string) (found []string) {
	t.Helper()
	all, err := r.Gather()
	testkit.NoError(t, err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if slices.Contains(valuesOf(m), label) {
				found = append(found, f.GetName()+"{"+strings.Join(valuesOf(m), ",")+"}")
			}
		}
	}
	return found
}

// TestHooksAndScrapesAtOnce: starts, stops and scrapes run concurrently and leave no series.
func TestHooksAndScrapesAtOnce(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 50 {
				of, name := &i, fmt.Sprint("c", (worker+i)%3)
				m.Send(&hook.QueueOpened{Queue: name, Of: of, Stats: func() hook.QueueStats { return hook.QueueStats{} }})
				m.Send(&hook.ControllerStarted{Controller: name, Of: of, Stats: func() hook.ControllerStats { return hook.ControllerStats{} }})
				m.Send(&hook.SourceStarted{Controller: name, Source: "s"})
				m.Send(&hook.QueueTaken{Queue: name})
				m.Send(&hook.Reconciled{Controller: name, Outcome: hook.Failed})
				m.Send(&hook.SourceDropped{Controller: name, Source: "s", Reason: "f"})
				m.Send(&hook.APIRequest{Controller: name, Verb: "get", Resource: fmt.Sprint("r", i)})
				m.Send(&hook.SourceStopped{Controller: name, Source: "s"})
				m.Send(&hook.ControllerStopped{Controller: name, Of: of})
				m.Send(&hook.QueueClosed{Queue: name, Of: of})
			}
		})
	}
	all.Go(func() {
		for range 20 {
			families(t, r)
		}
	})
	all.Wait()
	testkit.Len(t, families(t, r), 0, "at the end there")
}
