// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
)

// reviewing is an API server that also reviews.
type reviewing struct {
	*reviewer
	api *sim.Server
}

func (r reviewing) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "reviews") {
		return r.reviewer.RoundTrip(req)
	}
	return r.api.RoundTrip(req)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	return l
}

// fresh makes a client that uses each connection once, over HTTP/1.1 or HTTP/2.
func fresh() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // self-signed
		DisableKeepAlives: true,
	}}
}

// scrape gets the metrics with a token.
func scrape(ctx context.Context, c *http.Client, url, token string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// Over real sockets, with 2,000 idle connections, or 10,000 with SETPOINT_FULL, which need as many
// file descriptors.
func TestIdleConnectionsAndMadeUpTokensKeepNobodyFromAnAnswer(t *testing.T) {
	idle := 2_000
	if os.Getenv("SETPOINT_FULL") != "" {
		idle = 10_000
	}
	api, v := newAPI(), newReviewer()
	account := jwt(t, map[string]any{"alg": "RS256"}, map[string]any{"iss": "i", "sub": "s", "exp": time.Now().Add(time.Hour).Unix()})
	v.users[account] = "prometheus"
	renewed := make(chan struct{}, 100)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb == "update" {
			renewed <- struct{}{}
		}
		return nil, nil
	})
	health, server := listen(t), listen(t)
	m := newManager(reviewing{v, api}, func(o *manager.Options) {
		o.LeaderElection = &leaderelection.Options{Lease: "operator", Namespace: "default", LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second}
	})
	addHealth(m, serverOptions{Listener: health})
	guard := addServer(m, serverOptions{Listener: server})
	guard.Handle("/metrics", guard.Authorize(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })))
	m.AddLeaderOnly("work", (&diary{}).until("work", 0))
	stop, result := start(t, m)
	livez, metrics := "http://"+health.Addr().String()+"/livez", "https://"+server.Addr().String()+"/metrics"
	want(t, fresh(), livez, 200, "ok")
	for i := range idle {
		conn, err := net.Dial("tcp", []net.Listener{health, server}[i%2].Addr().String())
		testkit.NoError(t, err)
		defer conn.Close()
	}
	begun := time.Now()
	flooding, enough := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // self-signed
			defer c.CloseIdleConnections()
			for n := 0; flooding.Err() == nil; n++ {
				_, _ = scrape(flooding, c, metrics, fmt.Sprintf("made-up-%d-%d", i, n))
			}
		})
	}
	for range 4 {
		<-renewed
		want(t, fresh(), livez, 200, "ok")
		status, err := scrape(t.Context(), fresh(), metrics, account)
		testkit.Equal(t, status, 200, "the scrape", err)
	}
	stop()
	ok(t, result())
	enough()
	clients.Wait()
	tokens, _ := v.count()
	testkit.AtMost(t, tokens, 40+10*int(time.Since(begun)/time.Second)) // the budget
}
