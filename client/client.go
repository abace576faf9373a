// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/transport"
	"github.com/setpoint-dev/setpoint/rbac"
)

// Options configures New. The zero value works.
type Options struct {
	// Scheme has the Go types of the kinds. Do not change it after New. Default: client-go's
	// scheme, with every built-in kind.
	Scheme *runtime.Scheme
	// FieldOwner is the field manager of every write: at most 128 bytes, printable. Default:
	// "setpoint".
	FieldOwner string
	// FieldValidation is the option [FieldValidation] for every write. Default: the API server's,
	// which is metav1.FieldValidationWarn.
	FieldValidation string
	// DryRun is the option [DryRun] for every write of a [Handle] or a [Subresource], but not for
	// clients built from [Client.Config]. Default: false.
	DryRun bool
	// Hook gets the events of requests. Default: none.
	Hook *hook.Hook
	// RequireTerm refuses requests that may write if their context has neither a term of leadership
	// (term.With) nor term.Without. Default: they are sent, and reported as [hook.Unfenced].
	// client-go's event recorders fail with a strict client, because they use a context of their
	// own; package events works. A Client made from the Config of another inherits its RequireTerm,
	// and reports requests to its Hook, too.
	RequireTerm bool
}

// Validate returns an error that names a wrong field, or nil.
func (o Options) Validate() error {
	if err := checkFieldOwner(o.FieldOwner); err != nil {
		return fmt.Errorf("client.Options.FieldOwner: %w", err)
	}
	if err := checkFieldValidation(o.FieldValidation); err != nil {
		return fmt.Errorf("client.Options.FieldValidation: %w", err)
	}
	return nil
}

// maxApplied is the number of hashes that a client keeps, of about 300 bytes each.
const maxApplied = 100_000

// Client sends requests to one API server, with one http.Client.
type Client struct {
	resources

	config    *rest.Config
	http      *http.Client
	scheme    *runtime.Scheme
	codecs    serializer.CodecFactory
	discovery discovery.DiscoveryInterface
	mapper    *restMapper

	fieldOwner, fieldValidation string
	dryRun                      bool

	hook     *hook.Hook
	applied  *cache.LRUExpireCache // hashes, by appliedKey; see UnlessAlready
	warnings *warnings             // nil if the configuration has a handler of its own

	rests map[restKey]rest.Interface // guarded by the mutex of resources

	address string // of the API server
	closed  atomic.Bool
}

type restKey struct {
	kind  schema.GroupVersionKind
	typed bool
}

// New makes a client from a copy of cfg. It makes no request. QPS 0 means no client-side limit,
// unlike client-go's default of 5 requests per second. All kinds share a limit; watches do not
// count.
//
// The client logs each warning of the API server once, at level Warn, and at most 1000 different
// ones. It uses the logger of the request's context (logr.NewContext), or slog.Default. A warning
// handler in cfg gets the warnings instead.
func New(cfg *rest.Config, o Options) (*Client, error) {
	if cfg == nil {
		return nil, errors.New("client.New: the rest.Config is nil; client.LoadConfig finds one")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	cfg = ownConfig(cfg)
	var handler *warnings
	if cfg.WarningHandler == nil && cfg.WarningHandlerWithContext == nil {
		handler = &warnings{}
		cfg.WarningHandlerWithContext = warningHandler{warnings: handler}
	}
	o.Scheme = cmp.Or(o.Scheme, scheme.Scheme)
	o.FieldOwner = cmp.Or(o.FieldOwner, "setpoint")
	codecs := serializer.NewCodecFactory(o.Scheme)
	if err := transport.Wrap(cfg, transport.Options{Codecs: codecs, Hook: o.Hook, RequireTerm: o.RequireTerm}); err != nil {
		return nil, fmt.Errorf("client.New: %w", err)
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client.New: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(asJSON(cfg), httpClient)
	if err != nil {
		return nil, fmt.Errorf("client.New: %w", err)
	}
	c := &Client{
		resources: resources{
			rest: disco.RESTClient(), host: cfg.Host, versions: map[schema.GroupVersion]*groupVersion{},
		},
		config:    cfg,
		http:      httpClient,
		scheme:    o.Scheme,
		codecs:    codecs,
		discovery: disco,
		mapper:    &restMapper{discovery: disco, host: cfg.Host},

		fieldOwner:      o.FieldOwner,
		fieldValidation: o.FieldValidation,
		dryRun:          o.DryRun,

		hook:     o.Hook,
		applied:  cache.NewLRUExpireCache(maxApplied),
		warnings: handler,
		rests:    map[restKey]rest.Interface{},
		address:  disco.RESTClient().Get().URL().Host,
	}
	c.hook.Send(&hook.ClientOpened{Host: c.address})
	return c, nil
}

func ownConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = cmp.Or(cfg.QPS, -1)
	if cfg.QPS > 0 && cfg.RateLimiter == nil { // one for all kinds, or each would get its own
		cfg.Burst = cmp.Or(cfg.Burst, rest.DefaultBurst)
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)
	}
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	return cfg
}

// Config returns a copy of the client's configuration, with its transport, for other clients.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// HTTPClient returns the http.Client of all requests, for other clients of the API server.
func (c *Client) HTTPClient() *http.Client { return c.http }

// Scheme returns the scheme of Options. Do not change it.
func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// Rights returns the rights that the requests of the client, and of clients made from its Config,
// have used. Refused requests count as used, and the last of each kind is in refused, until one
// like it succeeds. See package rbac.
func (c *Client) Rights() (used, refused []rbac.Rule) { return transport.Rights(c.http.Transport) }

// Close closes idle connections. Requests in flight go on. The first call reports
// hook.ClientClosed.
func (c *Client) Close() {
	// http.Client.CloseIdleConnections does not look into client-go's wrappers.
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
	if !c.closed.Swap(true) {
		c.hook.Send(&hook.ClientClosed{Host: c.address})
	}
}

// Disconnect closes all connections at the end of a program. It waits for requests in flight, until
// ctx ends, and closes each connection when it becomes idle.
func (c *Client) Disconnect(ctx context.Context) { transport.Disconnect(ctx, c.http.Transport) }
