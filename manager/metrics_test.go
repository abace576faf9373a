// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
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
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
)

func newMetrics(t *testing.T, r prometheus.Registerer) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(r)
	if err != nil {
		t.Fatal(err)
	}
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
		"with the handlers":     {main: &serverOptions{}, atMain: no, withMain: yes},
		"plain with handlers":   {main: &serverOptions{Plain: true}, atMain: yes, withMain: yes},
		"of its own, not there": {main: &serverOptions{}, own: &serverOptions{}, atMain: none, withMain: none, atOwn: no, withOwn: yes},
		"nowhere":               {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mainWire, ownWire := newWire(), newWire()
				m := newManager(newReviewer(), func(o *manager.Options) {
					o.Metrics = newMetrics(t, prometheus.NewRegistry())
					if o.Server = test.main; test.main != nil {
						o.Server.Listener = mainWire
					}
					if o.MetricsServer = test.own; test.own != nil {
						o.MetricsServer.Listener = ownWire
					}
				})
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
					if status != with || (with == yes) != strings.Contains(body, "\ngo_goroutines ") {
						t.Errorf("with a token: %d, want %d\n%s", status, with, body)
					}
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
			o.Hooks = hook.Hooks{Client: counts.Hooks().Client, LeaderElection: &hook.LeaderElection{Acquired: func(string) { terms.Add(1) }}}
		})
		m.AddLeaderOnly("work", func(ctx context.Context) error { <-ctx.Done(); return nil })
		stop, result := start(t, m)
		pass(5 * time.Second)
		if n := terms.Load(); n != 1 {
			t.Errorf("the other hooks were called %d times", n)
		}
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
		if got["setpoint_leader_election_terms_total acquired"] != 1 || got["rest_client_requests_total 201"] != 1 {
			t.Errorf("counted: %v", got)
		}
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
		pass(time.Second)
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
		pass(time.Minute)
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
		"nothing to serve": {options: func(o *manager.Options) { o.Metrics, o.MetricsServer = nil, &serverOptions{} },
			want: "manager.Options.MetricsServer: there is nothing to serve; set Metrics as well"},
		"no Gatherer": {options: func(o *manager.Options) {
			o.Metrics, o.MetricsServer = newMetrics(t, prometheus.WrapRegistererWithPrefix("x_", registry)), &serverOptions{}
		}, want: "manager.Options.Metrics: metrics: the Registerer given to metrics.New is no prometheus.Gatherer"},
		"two registries": {options: func(o *manager.Options) { o.Server = &serverOptions{Listener: newWire()} },
			wire: func(m *manager.Manager) { m.Handle("GET /metrics", http.NotFoundHandler()) },
			want: `Handle: Options.Metrics has the path of "GET /metrics"; use another one, or set Options.MetricsServer`},
		"both on 8443": {options: func(o *manager.Options) { o.Server, o.MetricsServer = &serverOptions{}, &serverOptions{} },
			want: "manager.Options.Server and .MetricsServer have the same port, :8443 and :8443; give each one of its own"},
		"pprof on 8080": {options: func(o *manager.Options) {
			o.MetricsServer, o.PprofAddress = &serverOptions{Plain: true}, "localhost:8080"
		},
			want: "manager.Options.MetricsServer and .PprofAddress have the same port, :8080 and localhost:8080; give each one of its own"},
		"pprof on no port": {options: func(o *manager.Options) { o.PprofAddress = "6060" }, want: "manager.Options.PprofAddress: cannot listen on 6060: "},
		"certificate": {options: func(o *manager.Options) { o.MetricsServer = &serverOptions{CertFile: "x"} },
			want: "manager.Options.MetricsServer: server.Options: one of CertFile and KeyFile is set; set both or none"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(newAPI(), func(o *manager.Options) {
				o.Metrics = newMetrics(t, prometheus.NewRegistry())
				test.options(o)
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

// TestPortInUse_NamesOptionAndAddress: the other servers are closed again.
func TestPortInUse_NamesOptionAndAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer l.Close()
	taken := l.Addr().String()
	for field, take := range map[string]func(*manager.Options){
		"Health":        func(o *manager.Options) { o.Health = &manager.HealthOptions{Address: taken} },
		"Server":        func(o *manager.Options) { o.Server = &serverOptions{Address: taken} },
		"MetricsServer": func(o *manager.Options) { o.MetricsServer = &serverOptions{Address: taken} },
		"PprofAddress":  func(o *manager.Options) { o.PprofAddress = taken },
	} {
		t.Run(field, func(t *testing.T) {
			m := newManager(newAPI(), func(o *manager.Options) {
				o.Metrics = newMetrics(t, prometheus.NewRegistry())
				o.Health, o.Server = &manager.HealthOptions{Listener: newWire()}, &serverOptions{Listener: newWire()}
				o.MetricsServer, o.PprofAddress = &serverOptions{Listener: newWire()}, "localhost:0"
				take(o)
			})
			err := m.Run(t.Context())
			want := `the manager "test" cannot run: manager.Options.` + field + ": the address " + taken + " is taken: stop what listens there, or choose another one"
			if err == nil || err.Error() != want {
				t.Errorf("Run returned %v\nwant %s", err, want)
			}
		})
	}
}

// TestM3_AProfileHoldsNoStop: a stop ends a CPU profile of an hour, and the client gets it.
func TestM3_AProfileHoldsNoStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	address := l.Addr().String()
	ok(t, l.Close())
	m := newManager(newAPI(), func(o *manager.Options) { o.PprofAddress, o.Grace = address, time.Hour })
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
	for { // until the profile has begun
		if _, body := get(t, c, "http://"+address+"/debug/pprof/goroutine?debug=2"); strings.Contains(body, "debug.Profiles.record") {
			break
		}
	}
	stop()
	ok(t, result())
	if body := <-profile; !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("the profile begins with %.20q", body)
	}
}
