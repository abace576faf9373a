// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
)

func newMetrics(t *testing.T, r prometheus.Registerer) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(r)
	testkit.NoError(t, err)
	return m
}

// bearer sends a token with each request.
func bearer(c *http.Client, token string) *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("Authorization", "Bearer "+token)
		return c.Transport.RoundTrip(r)
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMetrics_AreServedWhereTheOptionsWantThem: TLS needs authorization, plain HTTP does not.
func TestMetrics_AreServedWhereTheOptionsWantThem(t *testing.T) {
	const yes, no, none = http.StatusOK, http.StatusUnauthorized, http.StatusNotFound
	for name, test := range map[string]struct {
		main, own        *serverOptions
		atMain, withMain int // without and with a token
		atOwn, withOwn   int
	}{
		"TLS of its own":        {own: &serverOptions{}, atOwn: no, withOwn: yes},
		"plain of its own":      {own: &serverOptions{Plain: true}, atOwn: yes, withOwn: yes},
		"of its own, not there": {main: &serverOptions{}, own: &serverOptions{}, atMain: none, withMain: none, atOwn: no, withOwn: yes},
		"nowhere":               {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mainWire, ownWire := newWire(), newWire()
				m := newManager(newReviewer(), func(o *manager.Options) { o.Metrics = newMetrics(t, prometheus.NewRegistry()) })
				if test.main != nil {
					test.main.Listener = mainWire
					addServer(m, *test.main)
				}
				if test.own != nil {
					test.own.Listener = ownWire
					addMetrics(m, *test.own)
				}
				stop, result := start(t, m)
				synctest.Wait()
				ask := func(w *wire, o *serverOptions, without, with int) {
					if o == nil {
						return
					}
					url := "https://x/metrics"
					if o.Plain {
						url = "http://x/metrics"
					}
					if status, body := get(t, w.client(t), url); status != without {
						t.Errorf("without a token: %d, want %d\n%s", status, without, body)
					}
					status, body := get(t, bearer(w.client(t), "good"), url)
					testkit.Equal(t, status, with, "with a token")
					testkit.Equal(t, strings.Contains(body, "\ngo_goroutines "), with == yes, "with a token")
				}
				ask(mainWire, test.main, test.atMain, test.withMain)
				ask(ownWire, test.own, test.atOwn, test.withOwn)
				stop()
				ok(t, result())
			})
		})
	}
}

// TestMetrics_ObserveEverything: one option feeds the metrics and other hooks, each once.
func TestMetrics_ObserveEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		counts := newMetrics(t, r)
		var terms atomic.Int32
		m := newManager(newAPI(), func(o *manager.Options) {
			elected(o)
			o.Metrics = counts
			o.Hook = hook.Join(counts.Hook(), hook.On(func(*hook.LeaseAcquired) { terms.Add(1) }))
		})
		m.AddLeaderOnly("work", func(ctx context.Context) error { <-ctx.Done(); return nil })
		stop, result := start(t, m)
		testkit.Pass(5 * time.Second)
		testkit.Equal(t, terms.Load(), 1, "the other hooks were called")
		stop()
		ok(t, result())
		all, err := r.Gather()
		ok(t, err)
		got := map[string]float64{}
		for _, f := range all {
			for _, series := range f.GetMetric() {
				if labels := series.GetLabel(); len(labels) > 0 {
					got[f.GetName()+" "+labels[0].GetValue()] += series.GetCounter().GetValue()
				}
			}
		}
		testkit.Equal(t, got["setpoint_leader_election_terms_total acquired"], 1, "counted", got)
		testkit.Equal(t, got["rest_client_requests_total 201"], 1, "counted", got)
	})
}

// TestMetrics_ARemovedClusterIsForgotten: its API server has no series any more, the others keep
// theirs.
func TestMetrics_ARemovedClusterIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		m := newManager(newAPI(), func(o *manager.Options) { o.Metrics = newMetrics(t, r) })
		east := rest.CopyConfig(config(newAPI()))
		east.Host = "https://east.test"
		c := m.AddCluster("east", east)
		maps := cache.For[*corev1.ConfigMap](c.Cache())
		cache.For[*corev1.ConfigMap](m.Cache())
		stop, result := start(t, m)
		ok(t, maps.WaitForSync(t.Context()))
		testkit.Pass(time.Second)
		hosts := func() (hosts []string) {
			all, err := r.Gather()
			ok(t, err)
			for _, f := range all {
				for _, series := range f.GetMetric() {
					for _, l := range series.GetLabel() {
						if l.GetName() == "host" && !slices.Contains(hosts, l.GetValue()) {
							hosts = append(hosts, l.GetValue())
						}
					}
				}
			}
			slices.Sort(hosts)
			return hosts
		}
		before := hosts()
		ok(t, m.RemoveCluster(t.Context(), c))
		testkit.Pass(time.Minute)
		if after := hosts(); len(before) != 2 || len(after) != 1 || after[0] == "east.test" {
			t.Errorf("the hosts were %v and are %v", before, after)
		}
		stop()
		ok(t, result())
	})
}

// TestMetrics_Mistakes: each is one sentence with a remedy.
func TestMetrics_Mistakes(t *testing.T) {
	var none *metrics.Metrics
	registry := prometheus.NewRegistry()
	for name, test := range map[string]struct {
		options func(*manager.Options)
		wire    func(*manager.Manager)
		want    string
	}{
		"nil": {options: func(o *manager.Options) { o.Metrics = none }, want: "manager.Options.Metrics: it is a nil pointer; use the result of metrics.New"},
		"nothing to serve": {options: func(o *manager.Options) { o.Metrics = nil }, wire: func(m *manager.Manager) { addMetrics(m, serverOptions{}) },
			want: "the metrics server: AddMetrics: there is nothing to serve; set manager.Options.Metrics, to the result of metrics.New"},
		"no Gatherer": {options: func(o *manager.Options) {
			o.Metrics = newMetrics(t, prometheus.WrapRegistererWithPrefix("x_", registry))
		}, wire: func(m *manager.Manager) { addMetrics(m, serverOptions{}) },
			want: "the metrics server: manager.Options.Metrics: metrics: the Registerer given to metrics.New is no prometheus.Gatherer"},
		"debug on no port": {wire: func(m *manager.Manager) { debug.Add(m, debug.Options{Address: "6060"}) }, want: "the debug server: cannot listen on 6060: "},
		"debug for all": {wire: func(m *manager.Manager) { debug.Add(m, debug.Options{Address: ":6060"}) },
			want: "the debug server: debug.Options.Address: :6060 is no loopback address, and the debug server authorizes no one; use localhost:6060, or pass debug.Handler to Authorize of a server of server.Add"},
		"certificate": {wire: func(m *manager.Manager) { addMetrics(m, serverOptions{CertFile: "x"}) },
			want: "the metrics server: server.Options: one of CertFile and KeyFile is set; set both or none"},
		"two with one name": {wire: func(m *manager.Manager) { addMetrics(m, serverOptions{}); addMetrics(m, serverOptions{}) },
			want: `AddReadyzCheck: two checks are named "certificate-metrics-server"; give each check, or each server, a name of its own`},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(newAPI(), func(o *manager.Options) {
				o.Metrics = newMetrics(t, prometheus.NewRegistry())
				if test.options != nil {
					test.options(o)
				}
			})
			if test.wire != nil {
				test.wire(m)
			}
			err := m.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), `the manager "test" cannot run: `+test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Run returned %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestPortInUse_NamesServerAndAddress: the other servers are closed again.
func TestPortInUse_NamesServerAndAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for name, add := range map[string]func(*manager.Manager){
		"health server":  func(m *manager.Manager) { addHealth(m, serverOptions{Address: taken}) },
		"server":         func(m *manager.Manager) { addServer(m, serverOptions{Address: taken}) },
		"metrics server": func(m *manager.Manager) { addMetrics(m, serverOptions{Address: taken}) },
		"debug server":   func(m *manager.Manager) { debug.Add(m, debug.Options{Address: taken}) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(newAPI(), func(o *manager.Options) { o.Metrics = newMetrics(t, prometheus.NewRegistry()) })
			first := newWire()
			addServer(m, serverOptions{Name: "first server", Listener: first})
			add(m)
			err := m.Run(t.Context())
			want := `the manager "test" cannot run: the ` + name + ": the address " + taken + " is taken: stop what listens there, or choose another one"
			testkit.Equal(t, fmt.Sprint(err), want, "Run returned")
			testkit.NotEqual(t, testkit.Err(first.dial(t.Context(), "", "")), nil, "the first server is still open")
		})
	}
}

// TestM3_AProfileHoldsNoStop: a stop ends a CPU profile of an hour, and the client gets it.
func TestM3_AProfileHoldsNoStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	address := l.Addr().String()
	ok(t, l.Close())
	m := newManager(newAPI(), func(o *manager.Options) { o.Grace = time.Hour })
	debug.Add(m, debug.Options{Address: address})
	served := make(chan struct{})
	m.AddEverywhere("wait", func(context.Context) error { close(served); return nil })
	stop, result := start(t, m)
	<-served // servers start first
	// After the timeout, the profile ends with its client, and the test fails.
	c := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	if status, body := get(t, c, "http://"+address+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "TestM3_AProfileHoldsNoStop") {
		t.Errorf("the profile of goroutines: %d\n%s", status, body)
	}
	profile := make(chan string, 1)
	go func() {
		_, body := get(t, c, "http://"+address+"/debug/pprof/profile?seconds=3600")
		profile <- body
	}()
	for len(profile) == 0 { // until it has begun
		if _, body := get(t, c, "http://"+address+"/debug/pprof/goroutine?debug=2"); strings.Contains(body, "debug.profiles.record") {
			break
		}
	}
	stop()
	ok(t, result())
	if body := <-profile; !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("the profile begins with %.20q", body)
	}
}
