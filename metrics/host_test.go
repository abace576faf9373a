// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestAHostGoesWithItsLastClient: clusters that come and go leave room for the others.
func TestAHostGoesWithItsLastClient(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(t, r)
	open := func(host string) *client.Client {
		c, err := client.New(&rest.Config{Host: "https://" + host, Transport: answering{}}, client.Options{Hook: m})
		testkit.NoError(t, err)
		return c
	}
	get := func(c *client.Client, status string) {
		resp, err := c.HTTPClient().Get(c.Config().Host + "/status/" + status)
		testkit.NoError(t, err)
		resp.Body.Close()
	}
	want := func(n float64, code, host string) {
		t.Helper()
		testkit.Equal(t, value(t, r, "rest_client_requests_total", code, host, http.MethodGet), n, fmt.Sprintf("%s of %s counts", code, host))
	}
	own, second := open("own"), open("own")
	get(own, "200")
	for n := range 400 {
		c := open(fmt.Sprintf("cluster-%d:6443", n))
		for _, status := range []string{"200", "404", "503"} {
			get(c, status)
		}
		want(1, "503", fmt.Sprintf("cluster-%d:6443", n))
		c.Close()
		c.Close() // the second time does not count
	}
	get(own, "500")
	want(1, "500", "own")
	want(-1, "503", "cluster-7:6443")
	second.Close()
	want(1, "500", "own")
	own.Close()
	want(-1, "500", "own")
	testkit.Equal(t, testkit.Must(testutil.GatherAndCount(r, "rest_client_requests_total", "rest_client_request_duration_seconds")), 0, "series are left")
}

// TestAHostGoesInEveryForm: a request names the host as the client does.
func TestAHostGoesInEveryForm(t *testing.T) {
	for _, host := range []string{"https://[2001:db8::7]:6443", "https://[2001:db8::7]", "10.0.0.7:8080", "plain", "https://CLUSTER.example.com", "https://proxy/clusters/a"} {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		c, err := client.New(&rest.Config{Host: host, Transport: answering{}}, client.Options{Hook: m})
		testkit.NoError(t, err)
		const series = "rest_client_requests_total"
		_, _ = c.Discovery().ServerVersion() // the answer has no version
		n, err := testutil.GatherAndCount(r, series)
		testkit.NoError(t, err, host)
		testkit.NotEqual(t, n, 0, host)
		c.Close()
		n, err = testutil.GatherAndCount(r, series, "rest_client_request_duration_seconds")
		testkit.NoError(t, err, host)
		testkit.Equal(t, n, 0, host, "series are left")
	}
}

// TestAnAnswerAfterCloseBringsNoHostBack: a removed cluster has requests in flight. Another client
// of the host keeps its series.
func TestAnAnswerAfterCloseBringsNoHostBack(t *testing.T) {
	for _, others := range []int{0, 1} {
		r := prometheus.NewPedanticRegistry()
		m := newMetrics(t, r)
		const host = "cluster:6443"
		arrived, answer := make(chan struct{}), make(chan struct{})
		c, err := client.New(&rest.Config{Host: "https://" + host, Transport: late{arrived, answer}}, client.Options{Hook: m})
		testkit.NoError(t, err)
		for range others {
			m.Send(&hook.ClientOpened{Host: host})
		}
		var running sync.WaitGroup
		running.Go(func() {
			resp, err := c.HTTPClient().Get(c.Config().Host + "/status/200")
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
		<-arrived
		c.Close()
		close(answer)
		running.Wait()
		n, err := testutil.GatherAndCount(r, "rest_client_requests_total", "rest_client_request_duration_seconds")
		testkit.Equal(t, n, 2*others, fmt.Sprintf("with %d other clients", others))
		testkit.Equal(t, err, nil, fmt.Sprintf("with %d other clients", others))
	}
}

// late answers when its test says so.
type late struct{ arrived, answer chan struct{} }

// CloseIdleConnections closes nothing.
func (late) CloseIdleConnections() {}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	close(l.arrived)
	<-l.answer
	return answering{}.RoundTrip(r)
}
