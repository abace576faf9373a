// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	crmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	crserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/source"
)

// lacking are the families of controller-runtime that Setpoint does not have, with the reason.
var lacking = map[string]string{
	// They are offered on request there.
	"rest_client_dns_resolution_duration_seconds":        "the resolver is outside the transport, which the hooks observe",
	"rest_client_rate_limiter_duration_seconds":          "the rate limiter is outside the transport, too",
	"rest_client_request_retries_total":                  "a retry is a request of its own here",
	"rest_client_request_size_bytes":                     "bodies are not measured",
	"rest_client_response_size_bytes":                    "bodies are not measured",
	"certwatcher_read_certificate_total":                 "of webhooks; readiness and the log report certificates",
	"certwatcher_read_certificate_errors_total":          "of webhooks; readiness and the log report certificates",
	"controller_runtime_webhook_panics_total":            "begins with the first request",
	"controller_runtime_conversion_webhook_panics_total": "begins with the first request",
}

// lackingSeries are the series of common families that Setpoint does not have, with the reason.
var lackingSeries = map[string]string{
	`controller_runtime_reconcile_total{controller="load",result="requeue"}`: "Result.Requeue is deprecated there, and does not exist here",
}

// stale are the metrics that controller-runtime updates only twice a second.
var stale = []string{"workqueue_longest_running_processor_seconds", "workqueue_unfinished_work_seconds"}

// misfortunes are the first results of some keys. All later Reconciles, and all of other keys,
// succeed.
var misfortunes = map[string]func(ctx context.Context) (after time.Duration, err error){
	"error":    func(context.Context) (time.Duration, error) { return 0, errors.New("no") },
	"terminal": func(context.Context) (time.Duration, error) { return 0, errTerminal },
	"panic":    func(context.Context) (time.Duration, error) { panic("no") },
	"later":    func(context.Context) (time.Duration, error) { return time.Millisecond, nil },
	"timeout": func(ctx context.Context) (time.Duration, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	},
}

var errTerminal = errors.New("never")

const (
	fortunate      = 20
	loadReconciles = fortunate + 5 + 4 // all but the terminal one are reconciled twice
	loadTimeout    = time.Second
)

// mishaps are what both programs do.
type mishaps struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

func (l *mishaps) reconcile(ctx context.Context, name string) (time.Duration, error) {
	l.mu.Lock()
	misfortune := misfortunes[name]
	if l.seen[name] {
		misfortune = nil
	}
	l.seen[name] = true
	l.mu.Unlock()
	if misfortune != nil {
		return misfortune(ctx)
	}
	return 0, nil
}

// TestScrape_KeepsDashboards runs a program of each library with the same load against a real API
// server. Each family of controller-runtime exists with the same type, labels and buckets. The
// families of controllers, queues and leader election also have the same values.
func TestScrape_KeepsDashboards(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		testkit.Equal(t, cluster.Stop(), nil)
	})
	core := kubernetes.NewForConfigOrDie(cluster.Config())
	names := slices.Collect(maps.Keys(misfortunes))
	for i := range fortunate {
		names = append(names, fmt.Sprint("fine", i))
	}
	for _, name := range names {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"load": "yes"}}}
		testkit.NoError(t, testkit.Err(core.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})))
	}
	theirs := scrapeControllerRuntime(t, cluster.Config())
	ours := scrapeSetpoint(t, cluster.Config())
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		compare(t, name, theirs[name], ours[name])
	}
	for series := range lackingSeries {
		if !slices.Contains(seriesOf(theirs), series) {
			t.Errorf("%s: it is an exception, but controller-runtime does not have it", series)
		}
	}
}

func compare(t *testing.T, name string, theirs, ours *dto.MetricFamily) {
	t.Helper()
	switch {
	case ours == nil && lacking[name] == "":
		t.Errorf("%s: it does not exist", name)
	case ours != nil && lacking[name] != "":
		t.Errorf("%s: it is an exception, but it exists", name)
	}
	if ours == nil {
		return
	}
	if theirs.GetType() != ours.GetType() {
		t.Errorf("%s: it is a %v, want a %v", name, ours.GetType(), theirs.GetType())
	}
	testkit.Equal(t, shape(theirs.GetMetric()[0]), shape(ours.GetMetric()[0]), name, "the labels and buckets")
	if slices.Contains(stale, name) || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "rest_client_") {
		return
	}
	values := map[string]float64{}
	for _, m := range ours.GetMetric() {
		values[series(name, m)] = valueOf(m)
	}
	for _, m := range theirs.GetMetric() {
		of := series(name, m)
		if got, ok := values[of]; (!ok || got != valueOf(m)) && lackingSeries[of] == "" {
			t.Errorf("%s: it is %v (exists: %v), want %v", of, got, ok, valueOf(m))
		}
	}
}

// shape returns the names of the labels and the classic buckets.
func shape(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, l.GetName())
	}
	slices.Sort(labels)
	var buckets []float64
	for _, b := range m.GetHistogram().GetBucket() {
		buckets = append(buckets, b.GetUpperBound())
	}
	return fmt.Sprint(labels, buckets)
}

func series(name string, m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(labels)
	return name + "{" + strings.Join(labels, ",") + "}"
}

func seriesOf(families map[string]*dto.MetricFamily) (all []string) {
	for name, f := range families {
		for _, m := range f.GetMetric() {
			all = append(all, series(name, m))
		}
	}
	return all
}

// valueOf returns a value, or how many values a histogram has.
func valueOf(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
}

// scrape gets and parses the text that Prometheus gets.
func scrape(t *testing.T, h http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	testkit.NoError(t, err)
	return families
}

func scrapeControllerRuntime(t *testing.T, cfg *rest.Config) map[string]*dto.MetricFamily {
	t.Helper()
	crmetrics.RegisterRESTClientMetrics(crmetrics.MetricRequestLatency, crmetrics.MetricDNSResolutionLatency, crmetrics.MetricRequestSize,
		crmetrics.MetricResponseSize, crmetrics.MetricRateLimiterLatency, crmetrics.MetricRequestRetry)
	mgr, err := crmanager.New(cfg, crmanager.Options{
		Metrics: crserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Cache:          crcache.Options{DefaultNamespaces: map[string]crcache.Config{"default": {}}},
		LeaderElection: true, LeaderElectionID: "load", LeaderElectionNamespace: "default", LeaderElectionReleaseOnCancel: true,
	})
	testkit.NoError(t, err)
	l := &mishaps{seen: map[string]bool{}}
	reader := mgr.GetAPIReader()
	err = builder.ControllerManagedBy(mgr).Named("load").For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o crclient.Object) bool { return o.GetLabels()["load"] != "" }))).
		WithOptions(crcontroller.Options{MaxConcurrentReconciles: 2, ReconciliationTimeout: loadTimeout}).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if err := reader.Get(ctx, r.NamespacedName, &corev1.ConfigMap{}); err != nil {
				return reconcile.Result{}, err
			}
			after, err := l.reconcile(ctx, r.Name)
			if errors.Is(err, errTerminal) {
				err = reconcile.TerminalError(err)
			}
			return reconcile.Result{RequeueAfter: after}, err
		}))
	testkit.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	h := promhttp.HandlerFor(crmetrics.Registry, promhttp.HandlerOpts{})
	for finished := 0.0; finished < loadReconciles; { // it has no Idle
		testkit.NoError(t, ctx.Err())
		if f := scrape(t, h)["workqueue_work_duration_seconds"]; f != nil {
			finished = valueOf(f.GetMetric()[0])
		}
	}
	families := scrape(t, h) // one scrape may read families at different times
	stop()
	testkit.NoError(t, <-done)
	return families
}

func scrapeSetpoint(t *testing.T, cfg *rest.Config) map[string]*dto.MetricFamily {
	t.Helper()
	counts, err := metrics.New(prometheus.NewPedanticRegistry())
	testkit.NoError(t, err)
	mgr := manager.New(cfg, manager.Options{
		Name: "load", Metrics: counts, Logger: slog.New(slog.DiscardHandler),
		LeaderElection: &leaderelection.Options{Lease: "load", Namespace: "default"},
	})
	l := &mishaps{seen: map[string]bool{}}
	c := controller.New("load", controller.Func[key](func(ctx context.Context, k key) (controller.Result, error) {
		if _, err := client.For[*corev1.ConfigMap](mgr.Client()).GetLive(ctx, k); err != nil {
			return controller.Result{}, err
		}
		after, err := l.reconcile(ctx, k.Name)
		if errors.Is(err, errTerminal) {
			err = controller.Terminal(err)
		}
		return controller.Result{RequeueAfter: after}, err
	}), controller.Options{Workers: 2, Deadline: loadTimeout})
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](mgr.Cache()), handler.Self(), handler.Where(func(_, m *corev1.ConfigMap) bool { return m.Labels["load"] != "" })))
	mgr.Add(c)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Run(ctx) }()
	// Some of its Reconciles fail.
	if err := mgr.Idle(ctx); err != nil && !errors.As(err, new(*manager.FailingError)) {
		t.Fatal(err)
	}
	h, err := counts.Handler()
	testkit.NoError(t, err)
	families := scrape(t, h)
	stop()
	testkit.NoError(t, <-done)
	return families
}
