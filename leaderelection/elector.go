// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/term"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Elector campaigns for one Lease. Run may be called once at a time.
type Elector struct {
	campaigner
	http *http.Client
}

// New makes an elector. It starts nothing and makes no request. Its requests do not wait for a rate
// limit of cfg, and time out after half the RenewDeadline (at least 1 s), so that a single one that
// hangs does not cost the term.
func New(cfg *rest.Config, o Options) (*Elector, error) {
	if cfg == nil {
		return nil, errors.New("leaderelection.New: the rest.Config is nil; client.LoadConfig finds one")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	cfg.UserAgent += "/leader-election" // rest.AddUserAgent would forget what the host has set
	cfg.Timeout = 0                     // it would end watches; requests have their own
	cfg.QPS, cfg.RateLimiter = -1, nil
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	coordination, err := coordinationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	e := &Elector{http: httpClient}
	e.leases = leases{o: o, rest: coordination.RESTClient()}
	e.now = newClock(wallTime)
	e.stamper = stamper{identity: o.Identity, host: server.Scheme + "://" + server.Host + strings.TrimSuffix(server.Path, "/")}
	return e, nil
}

// Run campaigns until ctx is done, and calls lead for each term. It returns nil after a stop, and
// what lead returned in a term that was not lost. An error that lead returned because its contexts
// ended, or because the fence refused a request of a lost term, is none. Run logs to the context's
// logger, else to slog.Default.
//
// Run also returns an error if lead goes on after a lost term for so long that another process may
// lead, unless [Options].Stay is set, and as long as it is called again meanwhile. Then the process
// should exit.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	defer utilnet.CloseIdleConnectionsFor(e.http.Transport)
	ctx = term.Without(ctx) // of our own requests: they are what a term is made of
	if t := e.current.Load(); t != nil {
		if _, err := t.renews(); err != nil {
			return fmt.Errorf("the Lease %s: %w: this process must exit", e, err)
		}
	}
	c := e.candidate(ctx)
	for {
		e.o.Hooks.Campaigning(e.o.Lease)
		h := c.campaign(ctx)
		if h == nil {
			return nil // stopped
		}
		lost, err := c.term(ctx, h, lead)
		if err != nil || !lost {
			return err
		}
	}
}

func (e *Elector) candidate(ctx context.Context) *candidate {
	log := logr.FromContextAsSlogLogger(ctx)
	if log == nil {
		log = slog.Default()
	}
	return &candidate{campaigner: &e.campaigner, log: log.With("lease", e.String()), rival: rival{least: e.o.LeaseDuration}, authors: authors{identity: e.o.Identity}}
}

// Identity is how this process appears as holder.
func (e *Elector) Identity() string { return e.o.Identity }

// Name is that of the Check, such as "leader-election-operator".
func (e *Elector) Name() string { return "leader-election-" + e.o.Lease }

// Check returns an error when this process must be replaced: the work of a term goes on
// [Options].Grace after the term was lost. Replicas that wait, and processes that do not run the
// elector, are well. It ignores its argument, which may be nil, and makes no request, so it suits a
// liveness probe. With Name the Elector is what k8s.io/apiserver calls a healthz.HealthChecker,
// like client-go's HealthzAdaptor. It is safe for concurrent use.
func (e *Elector) Check(*http.Request) error { return e.current.Load().check() }
