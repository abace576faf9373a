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
	"time"

	"github.com/go-logr/logr"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/setpoint-dev/setpoint/term"
)

// ErrLost is the cause with which a term's contexts end when the term is lost.
var ErrLost = errors.New("the term of leadership is lost")

// Lead is what a process does in a term. It should take new work until take is done, and run it on work, which outlives
// take on a stop and ends with it, cause [ErrLost], when the term is lost. The term lasts until it has returned. Both contexts
// carry it, as a [term.Term].
type Lead func(take, work context.Context) error

// Elector campaigns for one Lease. Run may be called once at a time.
type Elector struct {
	o    Options
	http *http.Client
	rest rest.Interface
	wall func() time.Time // the wall clock

	stamper stamper
	duties  duties
}

// New makes an elector. It starts nothing and makes no request. Its requests do not wait for a rate limit of cfg, and time out
// after half the RenewDeadline (at least 1 s), so that a single one that hangs does not cost the term.
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
	leases, err := coordinationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("leaderelection.New: %w", err)
	}
	e := &Elector{o: o, http: httpClient, rest: leases.RESTClient(), wall: func() time.Time { return time.Now().Round(0) }}
	e.stamper = stamper{identity: o.Identity, host: server.Scheme + "://" + server.Host + strings.TrimSuffix(server.Path, "/")}
	e.duties = duties{lease: e.String(), leaseDuration: o.LeaseDuration, grace: o.Grace}
	return e, nil
}

// Run campaigns until ctx is done, and calls lead for each term. It returns nil after a stop, what lead returned in a term that
// was not lost, or, unless [Options].Stay is set, an error if lead went on after a lost term for so long that somebody else may
// lead: then the process should exit. An error that lead returned because its contexts ended is none. It logs to the context's logger, else to slog.Default.
func (e *Elector) Run(ctx context.Context, lead Lead) error {
	defer utilnet.CloseIdleConnectionsFor(e.http.Transport)
	ctx = term.Without(ctx) // of our own requests: they are what a term is made of
	c := e.candidate(ctx)
	for {
		if e.o.Hooks.Campaigning != nil {
			e.o.Hooks.Campaigning(e.o.Lease)
		}
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

// Identity is how this process appears as holder.
func (e *Elector) Identity() string { return e.o.Identity }

// String names the Lease.
func (e *Elector) String() string { return e.o.Namespace + "/" + e.o.Lease }

// candidate is an elector in one Run. Only Run's goroutine uses it.
type candidate struct {
	*Elector
	log     *slog.Logger
	began   time.Time // by the monotonic clock
	wallDid time.Time // and by the wall clock

	rival      rival
	before     predecessor
	authors    authors
	left       *term.Handover // by the last holder, nil: nothing is known
	leader     string         // as last reported
	trouble    string         // as last logged
	watchAgain time.Time      // after it was refused
	polls      bool           // as last logged: it could not be watched
}

func (e *Elector) candidate(ctx context.Context) *candidate {
	log := logr.FromContextAsSlogLogger(ctx)
	if log == nil {
		log = slog.Default()
	}
	return &candidate{
		Elector: e, log: log.With("lease", e.String()), began: time.Now(), wallDid: e.wall(),
		rival: rival{least: e.o.LeaseDuration}, authors: authors{identity: e.o.Identity},
	}
}

// now reads both clocks.
func (c *candidate) now() instant {
	return instant{mono: time.Since(c.began), wall: c.wall().Sub(c.wallDid)}
}

// failed logs what goes wrong, once until it goes well or wrong in another way.
func (c *candidate) failed(doing string, err error) {
	if err == nil || c.trouble == err.Error() {
		return
	}
	c.trouble = err.Error()
	c.log.Warn(doing, "err", err)
	if c.o.Hooks.Trouble != nil {
		c.o.Hooks.Trouble(c.o.Lease, err)
	}
}

// succeeded logs that trouble is over.
func (c *candidate) succeeded() {
	if c.trouble == "" {
		return
	}
	c.trouble = ""
	c.log.Info("the lease can be read and written again")
	if c.o.Hooks.Trouble != nil {
		c.o.Hooks.Trouble(c.o.Lease, nil)
	}
}
