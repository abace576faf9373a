// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// figures compares the counters and gauges; histograms by their sums and counts.
func figures(t *testing.T, r prometheus.Gatherer, want string) {
	t.Helper()
	names := []string{"workqueue_depth", "workqueue_adds_total", "workqueue_retries_total", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func seconds(t *testing.T, r prometheus.Gatherer, histogram string) (count uint64, sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == histogram {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	return 0, 0
}

func TestWorkqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewPedanticRegistry()
		hooks, err := metrics.Workqueue(r)
		if err != nil {
			t.Fatal(err)
		}
		q, err := workqueue.New(workqueue.Options[string]{Name: "website", Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "a"} {
			q.Add(key)
		}
		time.Sleep(2 * time.Second)
		item, _ := q.Get(context.Background())
		time.Sleep(3 * time.Second)
		figures(t, r, `
# HELP workqueue_adds_total Keys that became ready.
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="website"} 2
# HELP workqueue_depth Keys that are ready and wait for a worker.
# TYPE workqueue_depth gauge
workqueue_depth{name="website"} 1
# HELP workqueue_longest_running_processor_seconds The longest time for which a key has been held by a worker so far.
# TYPE workqueue_longest_running_processor_seconds gauge
workqueue_longest_running_processor_seconds{name="website"} 3
# HELP workqueue_unfinished_work_seconds Sum of the times for which keys have been held by workers so far.
# TYPE workqueue_unfinished_work_seconds gauge
workqueue_unfinished_work_seconds{name="website"} 3
`)
		if _, err := item.Retry(errors.New("no")); err != nil {
			t.Fatal(err)
		}
		if n, sum := seconds(t, r, "workqueue_queue_duration_seconds"); n != 1 || sum != 2 {
			t.Errorf("queue duration: %d observations of %v s in all, want 1 of 2", n, sum)
		}
		if n, sum := seconds(t, r, "workqueue_work_duration_seconds"); n != 1 || sum != 3 {
			t.Errorf("work duration: %d observations of %v s in all, want 1 of 3", n, sum)
		}
		if n := testutil.CollectAndCount(gathered{r}, "workqueue_retries_total"); n != 1 {
			t.Errorf("%d series of retries, want 1", n)
		}
		q.ShutDown()
		if families, err := r.Gather(); err != nil || len(families) != 0 {
			t.Errorf("after the shutdown %d families are left (%v), want none", len(families), err)
		}
	})
}

// gathered is a registry as a collector.
type gathered struct{ *prometheus.Registry }

func TestWorkqueueRegistersWhereItIsTold(t *testing.T) {
	if _, err := metrics.Workqueue(nil); err == nil || !strings.Contains(err.Error(), "NewRegistry") {
		t.Errorf("a nil Registerer: %v, want a sentence that says what to do", err)
	}
	r := prometheus.NewRegistry()
	for i := range 2 {
		if _, err := metrics.Workqueue(r); (err == nil) != (i == 0) {
			t.Errorf("registration %d: %v, want only the first to succeed", i+1, err)
		}
	}
	if families, _ := prometheus.DefaultGatherer.Gather(); len(families) > 0 {
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "workqueue_") {
				t.Errorf("%s stands in the default registry", f.GetName())
			}
		}
	}
}
