// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/connection"
	"github.com/setpoint-dev/setpoint/internal/lease"
	"github.com/setpoint-dev/setpoint/internal/logging"
	"github.com/setpoint-dev/setpoint/internal/run"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/term"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Elector campaigns for one Lease. Run may be called once at a time.
type Elector struct {
	campaigner
	http *http.Client
}

// New makes an elector. It starts nothing and makes no request. With Options.Config, cfg may be
// nil. The elector ignores cfg's rate limit. Its requests time out after half of RenewDeadline, but
// not before 1 s. So a request that hangs does not cost the term. It shares the connections of a
// client.Client if cfg is from the Client's Config. The error names what is invalid.
func New(cfg *rest.Config, o Options) (*Elector, error) {
	field := "leaderelection.New"
	if o.Config != nil {
		cfg, field = o.Config, "leaderelection.Options.Config"
	}
	if cfg == nil {
		return nil, errors.New("leaderelection.New: the rest.Config is nil; client.LoadConfig finds one")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	e, err := newElector(lease.Config(cfg, "leader-election"), o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return e, nil
}

func newElector(cfg *rest.Config, o Options) (*Elector, error) {
	connections, err := connection.NewSet(cfg)
	if err != nil {
		return nil, err
	}
	// The connections of a client.Client take their place if cfg is from one.
	cfg.WrapTransport = transport.Wrappers(connections.Over, cfg.WrapTransport)
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	connection.RenewWithin(httpClient.Transport, o.RenewDeadline)
	coordination, err := coordinationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, err
	}
	host, err := lease.Host(cfg)
	if err != nil {
		return nil, err
	}
	e := &Elector{http: httpClient}
	e.now = newClock(wallTime)
	e.stamper = newStamper(o.Identity, host)
	e.o, e.rest = o, coordination.RESTClient()
	e.calls.Of = "the Lease " + e.String()
	e.watches.Of = "a watch of the Lease " + e.String()
	if o.Config != nil {
		e.elsewhere = host
	}
	return e, nil
}

// Run campaigns until ctx is done, and calls lead in each term. When lead returns, Run returns its
// result. After a lost term without an error, Run campaigns again. An error that only reports the
// end of lead's contexts, or a request that the fence refused after the loss, does not count. Run
// logs to the logger of ctx, else to slog.Default.
//
// If lead still runs when the Lease of a lost term expires, Run waits with [Options].Stay.
// Otherwise it returns an error, and the process should exit. Further calls fail until lead has
// returned.
//
// If a request for the Lease ignores the end of its context, the campaign or term goes on without
// its answer. At the end, Run waits for it as long as for an answer. Then it returns an error with
// the stack of the request.
func (e *Elector) Run(ctx context.Context, lead term.Lead) (err error) {
	defer utilnet.CloseIdleConnectionsFor(e.http.Transport)
	defer func() { err = errors.Join(err, run.Join(e.timeout(), &e.calls, &e.watches)) }()
	ctx = term.Without(ctx) // the elector's own requests are not fenced
	if t := e.current.Load(); t != nil {
		if _, err := t.renews(); err != nil {
			return fmt.Errorf("the Lease %s: %w: this process must exit", e, err)
		}
	}
	c := e.candidate(ctx)
	for {
		e.o.Hook.Send(&hook.LeaseCampaign{Lease: e.o.Lease})
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
	log := logging.Of(ctx)
	return &candidate{campaigner: &e.campaigner, log: log.With("lease", e.String()), rival: lease.Rival{Least: e.o.LeaseDuration}, authors: authors{identity: e.o.Identity}}
}

// Needs returns the rights of the elector's requests for its Lease.
func (e *Elector) Needs() []rbac.Need {
	right := func(names []string, verbs ...string) rbac.Need {
		return rbac.Need{Rule: rbac.Rule{
			Namespace: e.o.Namespace, Group: coordinationv1.GroupName, Resource: resource, Names: names, Verbs: verbs, Why: "the Lease " + e.String(),
		}}
	}
	return []rbac.Need{right(nil, "create"), right([]string{e.o.Lease}, "get", "update", "watch")}
}

// Identity returns the holderIdentity of this process.
func (e *Elector) Identity() string { return e.o.Identity }

// Name returns the name of the Check, such as "leader-election-operator".
func (e *Elector) Name() string { return "leader-election-" + e.o.Lease }

// Check returns an error if this process must be replaced: work still runs [Options].StuckAfter
// after its term was lost, or a request for the Lease has ignored the end of its context for that
// long, and no other request has returned meanwhile. Check makes no request and ignores its
// argument, which may be nil. With Name and Check, the Elector is a healthz.HealthChecker of
// k8s.io/apiserver. Check is safe for concurrent use.
func (e *Elector) Check(*http.Request) error {
	return cmp.Or(e.current.Load().check(), e.calls.Stuck(e.o.StuckAfter))
}
