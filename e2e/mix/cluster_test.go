// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/e2e/wire"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// faster is how much shorter the pauses are on the real control plane. The caches' bounds of
// detection and the Lease are shortened in the same way.
const faster = 30

// clusterPlane is the real control plane behind a proxy.
type clusterPlane struct {
	cluster *envtest.Cluster
	proxy   *fault.Proxy
	wire    *wire.Wire // before the proxy
	through *rest.Config
	t       *testing.T

	restoring sync.Mutex
}

func (p *clusterPlane) config() *rest.Config {
	cfg, err := p.proxy.Config()
	if err != nil {
		panic(err) // the proxy runs
	}
	cfg.Host = p.through.Host
	cfg.QPS = -1
	return cfg
}

func (p *clusterPlane) admin() *rest.Config {
	cfg := p.cluster.Config()
	cfg.QPS = -1
	return cfg
}

func (p *clusterPlane) add(r fault.Rule) *fault.Fault {
	r.Lag, r.Delay = r.Lag/faster, r.Delay/faster
	return p.proxy.Add(r)
}

func (p *clusterPlane) cut(m fault.Match) int { return p.proxy.Cut(m) }

func (p *clusterPlane) halfOpen(_ *rest.Config, d time.Duration) int {
	p.wire.Freeze()
	p.pause(d)
	return 1
}

func (p *clusterPlane) pause(d time.Duration)        { <-time.After(d / faster) }
func (p *clusterPlane) quietLimit() time.Duration    { return 6 * time.Second }
func (p *clusterPlane) leaseDuration() time.Duration { return 3 * time.Second }

// backup and restore are also outages of a few seconds. Only one pair runs at a time.
func (p *clusterPlane) backup() (restore func()) {
	p.restoring.Lock()
	b, err := p.cluster.Backup(context.Background())
	if err != nil {
		p.restoring.Unlock()
		p.t.Errorf("the backup failed: %v", err)
		return nil
	}
	return func() {
		defer p.restoring.Unlock()
		testkit.Equal(p.t, p.cluster.Restore(context.Background(), b), nil, "the restore failed")
	}
}

// TestMix_ControlPlane runs rounds on the real control plane, one after another in one cluster.
func TestMix_ControlPlane(t *testing.T) {
	rounds := setting(roundsVariable, 0, 20)
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("set SETPOINT_FULL=1 to run it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	cluster, err := envtest.Start(ctx, envtest.Options{CRDs: []string{"testdata/boards.yaml"}})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
	testkit.NoError(t, err)
	defer proxy.Stop()
	cfg, err := proxy.Config()
	testkit.NoError(t, err)
	between, through, err := wire.Start(cfg)
	testkit.NoError(t, err)
	defer between.Close()
	w, err := newWorld(&clusterPlane{cluster: cluster, proxy: proxy, wire: between, through: through, t: t})
	testkit.NoError(t, err)
	defer w.close()
	run(t, rounds, func(t *testing.T, seed uint64) (effects map[string]int, wrong []string) {
		return w.round(seed, kindOf(seed), faster*2*time.Minute)
	})
}
