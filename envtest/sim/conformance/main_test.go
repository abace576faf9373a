// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance sends the same requests to the simulated API server and to a real one, and
// compares the responses.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// cluster is a real control plane that the tests of this package share.
type cluster struct {
	controllers bool

	mu      sync.Mutex // guards what follows
	started *envtest.Cluster
	client  *http.Client
}

// plain has no controllers: nothing happens unless a request asks for it.
var plain, controlled = &cluster{}, &cluster{controllers: true}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{plain.stop(), controlled.stop(), closeWebhooks(), goleak.Find()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// start returns the address of the cluster and a client for it.
func (c *cluster) start(t testing.TB) (host string, client *http.Client) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it needs a control plane")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started == nil {
		started, err := envtest.Start(context.Background(), envtest.Options{
			CRDs: []string{"testdata/crds.yaml"}, Controllers: c.controllers,
			APIServerArgs: []string{
				"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false",
				"--service-cluster-ip-range=10.16.0.0/12", // no script deletes its Services
			},
		})
		testkit.NoError(t, err)
		c.started = started
		cfg := started.Config()
		cfg.UserAgent = userAgent
		c.client, err = rest.HTTPClientFor(cfg)
		testkit.NoError(t, err)
		testkit.NoError(t, readMinor(c.client, cfg.Host))
	}
	return c.started.Config().Host, c.client
}

// stop ends the cluster. The next start begins a new one.
func (c *cluster) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started == nil {
		return nil
	}
	var closed error
	if c.client == nil {
		closed = errors.New("there is no client")
	} else {
		c.client.CloseIdleConnections()
	}
	started := c.started
	c.started, c.client = nil, nil
	return errors.Join(closed, started.Stop())
}
