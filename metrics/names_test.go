// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promcollectors "github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standard are the metrics of k8s.io/component-base v0.37.0, in
// metrics/prometheus/{workqueue,restclient,clientgo/leaderelection}, and of
// sigs.k8s.io/controller-runtime v0.25.2, in pkg/internal/controller/metrics and pkg/webhook.
const standard = `
controller_runtime_active_workers gauge controller
controller_runtime_conversion_webhook_panics_total counter
controller_runtime_max_concurrent_reconciles gauge controller
controller_runtime_reconcile_errors_total counter controller
controller_runtime_reconcile_panics_total counter controller
controller_runtime_reconcile_time_seconds histogram controller
controller_runtime_reconcile_timeouts_total counter controller
controller_runtime_reconcile_total counter controller result
controller_runtime_terminal_reconcile_errors_total counter controller
controller_runtime_webhook_latency_seconds histogram webhook
controller_runtime_webhook_panics_total counter
controller_runtime_webhook_requests_in_flight gauge webhook
controller_runtime_webhook_requests_total counter code webhook
leader_election_master_status gauge name
leader_election_slowpath_total counter name
rest_client_request_duration_seconds histogram host verb
rest_client_requests_total counter code host method
workqueue_adds_total counter controller name
workqueue_depth gauge controller name priority
workqueue_longest_running_processor_seconds gauge controller name
workqueue_queue_duration_seconds histogram controller name
workqueue_retries_total counter controller name
workqueue_unfinished_work_seconds gauge controller name
workqueue_work_duration_seconds histogram controller name
`

// ours are the metrics that only Setpoint has.
const ours = `
setpoint_api_requests_total counter code controller resource verb
setpoint_api_unclear_writes_total counter controller resource
setpoint_events_dropped_total counter why
setpoint_events_failed_total counter
setpoint_events_sent_total counter kind reason type
setpoint_failing_keys gauge controller reason
setpoint_informer_broken_objects gauge kind
setpoint_informer_bytes gauge kind scope storage
setpoint_informer_decodes_total counter kind scope storage
setpoint_informer_lists_total counter kind
setpoint_informer_objects gauge kind scope storage
setpoint_informer_quiet_watches_total counter kind
setpoint_informer_watches_total counter kind
setpoint_informers gauge kind phase
setpoint_leader_election_unsynced_campaigns_total counter name
setpoint_leader_election_leader_changes_total counter name
setpoint_leader_election_renewal_duration_seconds histogram name
setpoint_leader_election_renewals_total counter name result
setpoint_leader_election_takeover_seconds histogram name
setpoint_leader_election_terms_total counter event name
setpoint_leader_election_trouble gauge name
setpoint_queue_dropped_total counter name why
setpoint_queue_keys gauge name state
setpoint_queue_misuses_total counter name
setpoint_queue_panics_total counter name
setpoint_queue_ready_keys gauge class name
setpoint_queue_tenant_ready_keys gauge name tenant
setpoint_reconcile_fights_total counter controller
setpoint_reconcile_own_writes_wait_seconds histogram controller
setpoint_reconcile_slow_total counter controller
setpoint_reconcile_stale_total counter controller
setpoint_shard_members gauge group
setpoint_shard_slot_changes_total counter event group
setpoint_shard_slots gauge group state
setpoint_shard_unserved_seconds gauge group
setpoint_skipped_applies_total counter controller resource
setpoint_source_dropped_total counter controller reason source
setpoint_source_handler_failures_total counter controller source
setpoint_source_poll_failures_total counter controller source
setpoint_takeover_stale_total counter controller
setpoint_takeover_wait_seconds histogram controller
setpoint_unfenced_writes_total counter resource verb
setpoint_webhook_certificate_expiration_timestamp_seconds gauge type
setpoint_webhook_rejections_total counter reason webhook
`

// feed sends an event of almost every type.
func feed(m *hook.Hook) {
	err := errors.New("broken")
	m.Send(&hook.ControllerStarted{Controller: "website", Of: m, Stats: func() hook.ControllerStats {
		return hook.ControllerStats{Workers: 8, Active: 3, Failing: map[string]int{"Forbidden": 4, "Conflict": 0}}
	}})
	m.Send(&hook.Reconciled{Controller: "website", Took: time.Second, Outcome: hook.Failed, Err: err, TimedOut: true})
	m.Send(&hook.Reconciled{Controller: "website", Took: time.Second, Outcome: hook.FailedTerminally, Err: err})
	m.Send(&hook.Reconciled{Controller: "website", Took: time.Second, Outcome: hook.Panicked, Err: err})
	m.Send(&hook.Reconciled{Controller: "website", Took: time.Second, Outcome: hook.Interrupted, Err: err})
	m.Send(&hook.Reconciled{Controller: "website", Took: time.Second, Outcome: hook.Succeeded})
	m.Send(&hook.Awaited{Controller: "website", Took: time.Second, Doubts: err})
	m.Send(&hook.Takeover{Controller: "website", Took: 2 * time.Second, Doubts: err})
	m.Send(&hook.Slow{Controller: "website"})
	m.Send(&hook.Fight{Controller: "website"})
	m.Send(&hook.QueueOpened{Queue: "website", Of: m, Stats: func() hook.QueueStats {
		return hook.QueueStats{Ready: 3, ReadyByClass: map[int]int{-1: 1, 0: 0, 7: 2}, ReadyByTenant: map[string]int{"shop": 1, "blog\xff": 2}, Waiting: 2, Held: 3, Parked: 4, Paused: 5, Unfinished: 6 * time.Second, Longest: 7 * time.Second}
	}})
	m.Send(&hook.QueueAdded{Queue: "website", Keys: 2})
	m.Send(&hook.QueueDelayed{Queue: "website"})
	m.Send(&hook.QueueTaken{Queue: "website", Waited: time.Second})
	m.Send(&hook.QueueSettled{Queue: "website", Outcome: hook.QueueAfter, Held: time.Second})
	m.Send(&hook.QueueSettled{Queue: "website", Outcome: hook.QueueDone, Held: time.Second})
	m.Send(&hook.QueueDropped{Queue: "website", Why: "added after shutdown", Keys: 3})
	m.Send(&hook.QueueMisused{Queue: "website"})
	m.Send(&hook.QueuePanicked{Queue: "website"})
	m.Send(&hook.SourceStarted{Controller: "website", Source: "Kind(Website)"})
	m.Send(&hook.SourceDropped{Controller: "website", Source: "Kind(Website)", Reason: "GenerationChanged"})
	m.Send(&hook.HandlerFailed{Controller: "website", Source: "Kind(Website)", Err: err})
	m.Send(&hook.PollFailed{Controller: "website", Source: "Kind(Website)", Err: err})
	m.Send(&hook.CacheStarted{Of: m, Informers: func() []hook.InformerState {
		return []hook.InformerState{
			{Kind: "Website", Phase: hook.Synced, Objects: 5, Lists: 1, Watches: 2, Quiet: 3, BrokenCount: 4, Storage: "decoded"},
			{Kind: "Website", Phase: hook.Failing, Objects: 6, Lists: 7, Watches: 8, Quiet: 9, BrokenCount: 1, Storage: "decoded"},
			{Kind: "Pod.v1", Phase: hook.Synced, Objects: 2, Scope: "labels a=b, namespace x", Selection: "labels a=b", Storage: "packed", Bytes: 300, Decodes: 4},
			{Kind: "Pod.v1", Phase: hook.Synced, Objects: 3, Scope: "labels a=b, namespace y", Selection: "labels a=b", Storage: "packed", Bytes: 500, Decodes: 6},
			{Kind: "Pod.v1", Phase: hook.Synced, Objects: 7, Storage: "packed", Bytes: 900},
		}
	}})
	m.Send(&hook.ClientOpened{Host: "api:6443"})
	m.Send(&hook.APIAnswer{Method: http.MethodPut, Host: "api:6443", Status: 409, Took: time.Second})
	m.Send(&hook.APIAnswer{Method: http.MethodGet, Host: "api:6443", Watch: true, Status: 200, Took: time.Second})
	m.Send(&hook.APIAnswer{Method: http.MethodGet, Host: "api:6443", Err: err, Took: time.Second})
	m.Send(&hook.APIRequest{Controller: "website", Verb: "update", Group: "apps", Resource: "deployments", Subresource: "scale", Status: 200, Unknown: "?"})
	m.Send(&hook.Unfenced{APIRequest: hook.APIRequest{Verb: "create", Resource: "pods"}})
	m.Send(&hook.SkippedApply{Controller: "website", Group: "apps", Resource: "deployments"})
	m.Send(&hook.LeaseCampaign{Lease: "operator"})
	m.Send(&hook.LeaseHolder{Lease: "operator", Identity: "other-replica"})
	m.Send(&hook.LeaseUnsynced{Lease: "operator"})
	m.Send(&hook.LeaseTakeover{Lease: "operator", Gap: 16 * time.Second})
	m.Send(&hook.LeaseAcquired{Lease: "operator"})
	m.Send(&hook.LeaseRenewal{Lease: "operator", Took: time.Second, Slowpath: true})
	m.Send(&hook.LeaseRenewal{Lease: "operator", Took: time.Second, Slowpath: true, Err: err})
	m.Send(&hook.LeaseTrouble{Lease: "operator", Err: err})
	m.Send(&hook.ShardGroup{Group: "operator", Member: "operator-1", Members: 3, Owned: 85, Moving: 2, Unserved: 1})
	m.Send(&hook.ShardSlots{Group: "operator", Slots: 86, Change: hook.ShardsAcquired})
	m.Send(&hook.ShardSlots{Group: "operator", Slots: 1, Change: hook.ShardsReleased})
	m.Send(&hook.EventSent{Kind: "Website", Type: "Warning", Reason: "ApplyFailed", Events: 3})
	m.Send(&hook.EventFailed{Kind: "Website", Type: "Warning", Reason: "ApplyFailed", Err: err})
	m.Send(&hook.EventDropped{Kind: "Website", Type: "Warning", Reason: "ApplyFailed", Why: "forbidden", Events: 2})
	validate := hook.WebhookRequest{Path: "/validate", Webhook: "validate.websites.web.example.com"}
	for range 4 {
		m.Send(&validate)
	}
	m.Send(&hook.WebhookAnswer{WebhookRequest: validate, Code: 200, Allowed: true, Took: time.Second})
	m.Send(&hook.WebhookAnswer{WebhookRequest: validate, Code: 200, Reason: "Invalid"})
	m.Send(&hook.WebhookAnswer{WebhookRequest: validate, Code: 500, Panicked: true})
	convert := hook.WebhookRequest{Path: "/convert", Conversion: true}
	m.Send(&convert)
	m.Send(&hook.WebhookAnswer{WebhookRequest: convert, Code: 500, Panicked: true})
	m.Send(&hook.WebhookCertificate{CA: true, NotAfter: time.Unix(9, 0)})
	m.Send(&hook.WebhookCertificate{NotAfter: time.Unix(5, 0)})
}

// newMetrics returns a Hook that feeds r. Because r appears to be no Gatherer, it gets no Go and
// process metrics.
func newMetrics(t testing.TB, r prometheus.Registerer) *hook.Hook {
	t.Helper()
	m, err := metrics.New(struct{ prometheus.Registerer }{r})
	testkit.NoError(t, err)
	return m.Hook()
}

// families returns a line for each metric of a registry, with type and labels.
func families(t *testing.T, r prometheus.Gatherer) []string {
	t.Helper()
	all, err := r.Gather()
	testkit.NoError(t, err)
	var lines []string
	for _, f := range all {
		line := f.GetName() + " " + strings.ToLower(f.GetType().String())
		if h := f.GetMetric()[0].GetHistogram(); h != nil && strings.HasPrefix(f.GetName(), "workqueue_") && h.GetSchema() != 3 {
			t.Errorf("%s: the schema of the native histogram is %d, want 3, as controller-runtime has it", f.GetName(), h.GetSchema())
		}
		for _, l := range f.GetMetric()[0].GetLabel() {
			line += " " + l.GetName()
		}
		lines = append(lines, line)
	}
	return lines
}

func TestNames(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	feed(newMetrics(t, r))
	want := slices.Concat(strings.Fields(strings.ReplaceAll(standard, " ", ",")), strings.Fields(strings.ReplaceAll(ours, " ", ",")))
	got := strings.Fields(strings.ReplaceAll(strings.Join(families(t, r), "\n"), " ", ","))
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing metric: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("unexpected metric: %s", line)
		}
	}
}

// TestLint: promlint accepts all metrics, except for names that come from others.
func TestLint(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	feed(newMetrics(t, r))
	problems, err := testutil.GatherAndLint(r)
	testkit.NoError(t, err)
	for _, p := range slices.DeleteFunc(problems, func(p promlint.Problem) bool { return strings.Contains(standard, "\n"+p.Metric+" ") }) {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestScrape is what a Prometheus server reads.
func TestScrape(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	feed(newMetrics(t, r))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, line := range []string{
		`controller_runtime_active_workers{controller="website"} 3`,
		`controller_runtime_max_concurrent_reconciles{controller="website"} 8`,
		`setpoint_failing_keys{controller="website",reason="Conflict"} 0`,
		`setpoint_failing_keys{controller="website",reason="Forbidden"} 4`,
		`controller_runtime_reconcile_errors_total{controller="website"} 3`,
		`controller_runtime_reconcile_panics_total{controller="website"} 1`,
		`controller_runtime_reconcile_time_seconds_bucket{controller="website",le="1"} 5`,
		`controller_runtime_reconcile_time_seconds_sum{controller="website"} 5`,
		`controller_runtime_reconcile_timeouts_total{controller="website"} 1`,
		`controller_runtime_reconcile_total{controller="website",result="error"} 3`,
		`controller_runtime_reconcile_total{controller="website",result="interrupted"} 1`,
		`controller_runtime_reconcile_total{controller="website",result="requeue_after"} 0`,
		`controller_runtime_reconcile_total{controller="website",result="success"} 1`,
		`controller_runtime_terminal_reconcile_errors_total{controller="website"} 1`,
		`controller_runtime_conversion_webhook_panics_total 1`,
		`controller_runtime_webhook_latency_seconds_sum{webhook="/validate"} 1`,
		`controller_runtime_webhook_panics_total 1`,
		`controller_runtime_webhook_requests_in_flight{webhook="/validate"} 1`,
		`controller_runtime_webhook_requests_total{code="200",webhook="/validate"} 2`,
		`controller_runtime_webhook_requests_total{code="200",webhook="/convert"} 0`,
		`controller_runtime_webhook_requests_total{code="500",webhook="/validate"} 1`,
		`setpoint_webhook_certificate_expiration_timestamp_seconds{type="ca"} 9`,
		`setpoint_webhook_certificate_expiration_timestamp_seconds{type="serving"} 5`,
		`setpoint_webhook_rejections_total{reason="Invalid",webhook="/validate"} 1`,
		`leader_election_master_status{name="operator"} 1`,
		`leader_election_slowpath_total{name="operator"} 1`,
		`rest_client_request_duration_seconds_count{host="api:6443",verb="GET"} 1`,
		`rest_client_request_duration_seconds_bucket{host="api:6443",verb="PUT",le="1"} 1`,
		`rest_client_requests_total{code="200",host="api:6443",method="GET"} 1`,
		`rest_client_requests_total{code="409",host="api:6443",method="PUT"} 1`,
		`rest_client_requests_total{code="<error>",host="api:6443",method="GET"} 1`,
		`setpoint_api_requests_total{code="200",controller="website",resource="deployments.apps/scale",verb="update"} 1`,
		`setpoint_api_unclear_writes_total{controller="website",resource="deployments.apps/scale"} 1`,
		`setpoint_events_dropped_total{why="forbidden"} 2`,
		`setpoint_events_failed_total 1`,
		`setpoint_events_sent_total{kind="Website",reason="ApplyFailed",type="Warning"} 3`,
		`setpoint_informer_broken_objects{kind="Website"} 5`,
		`setpoint_informer_lists_total{kind="Website"} 8`,
		`setpoint_informer_bytes{kind="Pod.v1",scope="",storage="packed"} 900`,
		`setpoint_informer_bytes{kind="Pod.v1",scope="labels a=b",storage="packed"} 800`,
		`setpoint_informer_decodes_total{kind="Pod.v1",scope="",storage="packed"} 0`,
		`setpoint_informer_decodes_total{kind="Pod.v1",scope="labels a=b",storage="packed"} 10`,
		`setpoint_informer_objects{kind="Pod.v1",scope="",storage="packed"} 7`,
		`setpoint_informer_objects{kind="Pod.v1",scope="labels a=b",storage="packed"} 5`,
		`setpoint_informer_objects{kind="Website",scope="",storage="decoded"} 11`,
		`setpoint_informer_quiet_watches_total{kind="Website"} 12`,
		`setpoint_informer_watches_total{kind="Website"} 10`,
		`setpoint_informers{kind="Website",phase="failing"} 1`,
		`setpoint_informers{kind="Website",phase="stopped"} 0`,
		`setpoint_informers{kind="Website",phase="synced"} 1`,
		`setpoint_leader_election_unsynced_campaigns_total{name="operator"} 1`,
		`setpoint_leader_election_leader_changes_total{name="operator"} 1`,
		`setpoint_leader_election_renewal_duration_seconds_count{name="operator"} 2`,
		`setpoint_leader_election_renewals_total{name="operator",result="error"} 1`,
		`setpoint_leader_election_renewals_total{name="operator",result="success"} 1`,
		`setpoint_leader_election_takeover_seconds_sum{name="operator"} 16`,
		`setpoint_leader_election_terms_total{event="acquired",name="operator"} 1`,
		`setpoint_leader_election_terms_total{event="lost",name="operator"} 0`,
		`setpoint_leader_election_trouble{name="operator"} 1`,
		`setpoint_queue_dropped_total{name="website",why="added after shutdown"} 3`,
		`setpoint_queue_keys{name="website",state="parked"} 4`,
		`setpoint_queue_keys{name="website",state="paused"} 5`,
		`setpoint_queue_keys{name="website",state="waiting"} 2`,
		`setpoint_queue_misuses_total{name="website"} 1`,
		`setpoint_queue_panics_total{name="website"} 1`,
		`setpoint_queue_ready_keys{class="7",name="website"} 2`,
		`setpoint_queue_ready_keys{class="background",name="website"} 1`,
		`setpoint_queue_ready_keys{class="normal",name="website"} 0`,
		`setpoint_queue_tenant_ready_keys{name="website",tenant="\"blog\\xff\""} 2`,
		`setpoint_queue_tenant_ready_keys{name="website",tenant="shop"} 1`,
		`setpoint_reconcile_fights_total{controller="website"} 1`,
		`setpoint_reconcile_own_writes_wait_seconds_sum{controller="website"} 1`,
		`setpoint_reconcile_slow_total{controller="website"} 1`,
		`setpoint_reconcile_stale_total{controller="website"} 1`,
		`setpoint_shard_members{group="operator"} 3`,
		`setpoint_shard_slot_changes_total{event="acquired",group="operator"} 86`,
		`setpoint_shard_slot_changes_total{event="lost",group="operator"} 0`,
		`setpoint_shard_slot_changes_total{event="released",group="operator"} 1`,
		`setpoint_shard_slots{group="operator",state="moving"} 2`,
		`setpoint_shard_slots{group="operator",state="owned"} 85`,
		`setpoint_shard_slots{group="operator",state="unserved"} 1`,
		`setpoint_shard_unserved_seconds{group="operator"} 0`,
		`setpoint_skipped_applies_total{controller="website",resource="deployments.apps"} 1`,
		`setpoint_source_dropped_total{controller="website",reason="GenerationChanged",source="Kind(Website)"} 1`,
		`setpoint_source_handler_failures_total{controller="website",source="Kind(Website)"} 1`,
		`setpoint_source_poll_failures_total{controller="website",source="Kind(Website)"} 1`,
		`setpoint_takeover_stale_total{controller="website"} 1`,
		`setpoint_takeover_wait_seconds_sum{controller="website"} 2`,
		`setpoint_unfenced_writes_total{resource="pods",verb="create"} 1`,
		`workqueue_adds_total{controller="website",name="website"} 2`,
		`workqueue_depth{controller="website",name="website",priority="-100"} 1`,
		`workqueue_depth{controller="website",name="website",priority="0"} 0`,
		`workqueue_depth{controller="website",name="website",priority="700"} 2`,
		`workqueue_longest_running_processor_seconds{controller="website",name="website"} 7`,
		`workqueue_queue_duration_seconds_count{controller="website",name="website"} 1`,
		`workqueue_retries_total{controller="website",name="website"} 2`,
		`workqueue_unfinished_work_seconds{controller="website",name="website"} 6`,
		`workqueue_work_duration_seconds_sum{controller="website",name="website"} 2`,
	} {
		testkit.Contains(t, answer.Body.String(), "\n"+line+"\n", "missing metric", line)
	}
}

// TestM5_NothingBehindTheHostsBack: New registers only with the given Registerer, and two prefixes
// are independent.
func TestM5_NothingBehindTheHostsBack(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	first := newMetrics(t, r)
	second := newMetrics(t, prometheus.WrapRegistererWithPrefix("second_", r))
	feed(first)
	feed(second)
	second.Send(&hook.ControllerStopped{Controller: "website", Of: second})
	all := families(t, r)
	for _, line := range strings.Split(strings.TrimSpace(standard), "\n") {
		gone := strings.HasPrefix(line, "controller_runtime_") && !strings.Contains(line, "webhook")
		if !slices.Contains(all, line) || slices.Contains(all, "second_"+line) == gone {
			t.Errorf("the two meet in %s", line)
		}
	}
	if global, err := prometheus.DefaultGatherer.Gather(); err != nil || slices.ContainsFunc(families(t, prometheus.DefaultGatherer), func(line string) bool {
		return strings.Contains(line, "workqueue_") || strings.Contains(line, "setpoint_")
	}) {
		t.Errorf("the default registry has %d families (%v)", len(global), err)
	}
}

// TestNew_RefusesARegistryTwice: the error has a remedy, and the first Metrics are unharmed.
func TestNew_RefusesARegistryTwice(t *testing.T) {
	testkit.ErrorContains(t, testkit.Err(metrics.New(nil)), "NewRegistry", "a nil Registerer")
	registry := prometheus.NewPedanticRegistry()
	for _, r := range []prometheus.Registerer{registry, prometheus.WrapRegistererWithPrefix("second_", registry)} {
		m, err := metrics.New(r)
		testkit.NoError(t, err)
		for range 2 {
			_, err := metrics.New(r)
			testkit.ErrorContains(t, err, "use the Metrics of the first call", "the same names twice")
			testkit.NotContains(t, fmt.Sprint(err), "\n", "the same names twice")
		}
		feed(m.Hook())
	}
}

// TestNew_RefusesNamesThatAreTaken: one name is enough, and nothing is registered then.
func TestNew_RefusesNamesThatAreTaken(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_adds_total", Help: "Theirs."}, []string{"name"}))
	_, err := metrics.New(r)
	testkit.ErrorContains(t, err, "WrapRegistererWithPrefix")
	testkit.ErrorContains(t, err, "workqueue_adds_total")
	testkit.Equal(t, len(families(t, r)), 0, "families are registered despite the error")
	feed(newMetrics(t, prometheus.WrapRegistererWithPrefix("ours_", r)))
}

// TestNew_AddsGoAndProcess: also to a registry that has them already, in any variant. A wrapped
// Registerer does not get them, because the wrapped registry has them.
func TestNew_AddsGoAndProcess(t *testing.T) {
	plain, base := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	base.MustRegister(promcollectors.NewGoCollector(), promcollectors.NewProcessCollector(promcollectors.ProcessCollectorOpts{}))
	names := []string{"go_goroutines gauge", "go_sched_latencies_seconds histogram", "process_cpu_seconds_total counter"}
	for has, r := range map[int]prometheus.Registerer{
		3: plain, 2: base, 0: prometheus.WrapRegistererWithPrefix("x_", prometheus.NewRegistry()),
	} {
		m, err := metrics.New(r)
		testkit.NoError(t, err)
		feed(m.Hook())
		h, err := m.Handler()
		if has == 0 {
			testkit.ErrorContains(t, err, "manager.Options.Hook", "a Registerer that is no Gatherer")
			testkit.ErrorContains(t, err, "promhttp.HandlerFor", "a Registerer that is no Gatherer")
			continue
		}
		testkit.NoError(t, err)
		got := families(t, r.(prometheus.Gatherer)) //nolint:forcetypeassert // a registry
		for i, name := range names {
			testkit.Equal(t, slices.Contains(got, name), i != 1 || has == 3, fmt.Sprintf("registry %d", has), name)
		}
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		for _, line := range []string{"\ngo_goroutines ", "\nprocess_cpu_seconds_total ", "\nworkqueue_adds_total{"} {
			testkit.Equal(t, answer.Code, http.StatusOK, fmt.Sprintf("registry %d", has))
			testkit.Contains(t, answer.Body.String(), line, fmt.Sprintf("registry %d", has))
		}
	}
}

// TestTenants_AreBounded: the tenants with the most keys have series, and the sum stays complete.
func TestTenants_AreBounded(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	tenants := map[string]int{"other": 500}
	for i := range 300 {
		tenants[fmt.Sprint("tenant", i)] = i
	}
	for _, of := range []string{"first", "second"} { // both have the name
		m.Send(&hook.QueueOpened{Queue: "website", Of: of, Stats: func() hook.QueueStats { return hook.QueueStats{ReadyByTenant: tenants} }})
	}
	got := map[string]float64{}
	all, err := r.Gather()
	testkit.NoError(t, err)
	for _, f := range all {
		for _, series := range f.GetMetric() {
			if f.GetName() == "setpoint_queue_tenant_ready_keys" {
				got[valuesOf(series)[1]] = series.GetGauge().GetValue()
			}
		}
	}
	rest := 200 * 201 / 2 // 0 to 200
	if len(got) != 100 || got["tenant299"] != 2*299 || got["tenant201"] != 2*201 || got["other"] != float64(2*(500+rest)) {
		t.Errorf("%d series; the largest are %v and %v, others %v", len(got), got["other"], got["tenant299"], got["tenant201"])
	}
}

// TestEveryEventCounts: except for events without anything to count.
func TestEveryEventCounts(t *testing.T) {
	uncounted := []string{
		"Reconciling",
		"GaveUp",                        // Reconciled has it
		"InformerState", "BrokenObject", // scrapes ask for these
		"Restored",       // the informer's state and the log have it
		"HandlerBlocked", // a mistake in the program, for the log
	}
	var code []byte
	files, _ := filepath.Glob("*.go")
	for _, name := range append(files, "../hook/event.go") {
		text, err := os.ReadFile(name)
		testkit.NoError(t, err)
		code = append(code, text...)
	}
	events := regexp.MustCompile(`(?m)^func \(\*(\w+)\) event\(\)`).FindAllSubmatch(code, -1)
	testkit.NotEqual(t, len(events), 0, "package hook has no events")
	for _, e := range events {
		name := string(e[1])
		testkit.NotEqual(t, bytes.Contains(code, []byte("case *hook."+name+":\n")), slices.Contains(uncounted, name), name, "count it, or say in this test that there is nothing to count")
	}
}

// TestBounded: the number of series is limited, and the sum stays complete.
func TestBounded(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	const asked = 1500
	for i := range asked {
		m.Send(&hook.Unfenced{APIRequest: hook.APIRequest{Verb: "create", Resource: fmt.Sprint("kind", i)}})
	}
	all, err := r.Gather()
	testkit.NoError(t, err)
	sum := 0.0
	for _, series := range all[0].GetMetric() {
		sum += series.GetCounter().GetValue()
	}
	testkit.Equal(t, len(all[0].GetMetric()), 1001)
	testkit.Equal(t, sum, asked)
}

// TestScopes_AreBounded: scopes beyond the limit share one series for each storage, and decoded
// ones have no bytes.
func TestScopes_AreBounded(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	m.Send(&hook.CacheStarted{Of: m, Informers: func() (states []hook.InformerState) {
		for i := range 1500 {
			s := hook.InformerState{Kind: "Pod.v1", Selection: fmt.Sprintf("labels tenant=%04d", i), Storage: "decoded", Objects: 1}
			if i%2 == 0 {
				s.Storage, s.Bytes, s.Decodes = "packed", 10, 100
			}
			states = append(states, s)
		}
		return states
	}})
	for _, c := range []struct {
		metric, scope, storage string
		want                   float64
	}{
		{"setpoint_informer_objects", "labels tenant=0999", "decoded", 1},
		{"setpoint_informer_objects", "labels tenant=1000", "packed", -1},
		{"setpoint_informer_bytes", "labels tenant=0999", "decoded", -1},
		{"setpoint_informer_bytes", "labels tenant=0998", "packed", 10},
	} {
		testkit.Equal(t, value(t, r, c.metric, "Pod.v1", c.scope, c.storage), c.want, c)
	}
	for metric, want := range map[string]float64{"setpoint_informer_objects": 250, "setpoint_informer_bytes": 2500, "setpoint_informer_decodes_total": 25000} {
		testkit.Equal(t, value(t, r, metric, "other", "other", "packed"), want, fmt.Sprintf("%s of all others", metric))
	}
}
