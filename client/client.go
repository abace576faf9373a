// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"net/http"

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
)

// Options configures New. The zero value works.
type Options struct {
	// Scheme has the Go types of the kinds. Default: client-go's scheme, which has every built-in
	// kind. Do not change it after New.
	Scheme *runtime.Scheme
	// FieldOwner is the field manager of every write: at most 128 bytes of printable characters.
	// Default: "setpoint".
	FieldOwner string
	// Hooks are called for requests. Default: none.
	Hooks *hook.Client
	// Strict refuses requests that may write if their context has neither a term of leadership
	// (term.With) nor term.Without. Default: they are made and counted ([hook.Client].Unfenced).
	// Event recorders use a context of their own: give them a client that is not strict. A Client
	// made from the Config of another inherits Strict, and its Hooks where it has none.
	Strict bool
}

// Validate returns an error that names a wrong field.
func (o Options) Validate() error {
	if err := checkFieldOwner(o.FieldOwner); err != nil {
		return fmt.Errorf("client.Options.FieldOwner: %w", err)
	}
	return nil
}

// maxApplied is how many hashes a client keeps, of some 300 bytes each. The oldest go first.
const maxApplied = 100_000

// Client talks to one API server. It is safe for concurrent use. Its requests share one http.Client.
type Client struct {
	resources

	config     *rest.Config
	http       *http.Client
	scheme     *runtime.Scheme
	codecs     serializer.CodecFactory
	fieldOwner string
	hooks      hook.Client
	applied    *cache.LRUExpireCache // hashes, by appliedKey; see UnlessAlready
	warnings   *warnings             // nil if the configuration has a handler of its own

	rests map[restKey]rest.Interface // guarded by the mutex of resources
}

// restKey identifies one of client-go's REST clients.
type restKey struct {
	kind  schema.GroupVersionKind
	typed bool
}

// New makes a client from a copy of cfg. It makes no request. QPS 0 in cfg means no client-side limit,
// where client-go's default is 5 requests per second. A limit holds for all kinds together, watches
// excepted.
//
// Warnings of the API server, about deprecated kinds and unknown fields for instance, are logged once
// per client at level Warn, at most 1000 different ones. The logger is that of the request's context
// (logr.NewContext), or slog.Default. A warning handler in cfg gets them instead.
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
		cfg.WarningHandlerWithContext = handler.of(schema.GroupVersionKind{})
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	if o.FieldOwner == "" {
		o.FieldOwner = "setpoint"
	}
	if o.Hooks == nil {
		o.Hooks = &hook.Client{}
	}
	codecs := serializer.NewCodecFactory(o.Scheme)
	if err := transport.Wrap(cfg, transport.Options{Codecs: codecs, Hooks: *o.Hooks, Strict: o.Strict}); err != nil {
		return nil, fmt.Errorf("client.New: %w", err)
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client.New: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client.New: %w", err)
	}
	return &Client{
		resources: resources{
			rest: disco.RESTClient(), host: cfg.Host, versions: map[schema.GroupVersion]*groupVersion{},
		},
		config:     cfg,
		http:       httpClient,
		scheme:     o.Scheme,
		codecs:     codecs,
		fieldOwner: o.FieldOwner,
		hooks:      *o.Hooks,
		applied:    cache.NewLRUExpireCache(maxApplied),
		warnings:   handler,
		rests:      map[restKey]rest.Interface{},
	}, nil
}

// ownConfig returns a copy with the limits that New promises, and a user agent.
func ownConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if cfg.QPS == 0 {
		cfg.QPS = -1
	}
	if cfg.QPS > 0 && cfg.RateLimiter == nil { // one for all kinds, or each would get its own
		if cfg.Burst == 0 {
			cfg.Burst = rest.DefaultBurst
		}
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return cfg
}

// Config returns a copy of the client's configuration. Clients built from it, of any library, use the
// transport that the package doc describes.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// ConfigFor is Config with a user agent that names the controller, for the API server's audit log and
// metrics: "<as configured> controller/<name>". Clients built from it share connections if
// client-go's transport cache can compare the configurations, which a Proxy func prevents.
func (c *Client) ConfigFor(controller string) *rest.Config {
	cfg := c.Config()
	cfg.UserAgent = transport.UserAgentFor(cfg.UserAgent, controller)
	return cfg
}

// HTTPClient returns the http.Client of all requests, for other clients of the same API server.
func (c *Client) HTTPClient() *http.Client { return c.http }

// Scheme returns the scheme of Options. It must not be changed.
func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// Close closes idle connections. Requests in flight go on.
func (c *Client) Close() {
	utilnet.CloseIdleConnectionsFor(c.http.Transport) // http.Client does not look into client-go's wrappers
}
