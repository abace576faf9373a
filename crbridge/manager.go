// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	theirs "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/metrics"
)

// Settings are what controller-runtime's options have no field for.
type Settings struct {
	// Name is the program's name, as in manager.Options. Default: LeaderElectionID, or else the
	// name of the executable.
	Name string
	// RefuseUndeclared makes it an error if a Reconcile of level b reads a kind that its controller
	// neither watches nor declares with [Builder.Reads]. It does not see reads with another context
	// than the Reconcile's. Default: the read declares it.
	RefuseUndeclared bool
	// KeepManagedFields keeps metadata.managedFields in the cache. Default: the cache drops them.
	KeepManagedFields bool
	// Configure changes the options of Setpoint's manager that NewManager has computed. Default:
	// nothing.
	Configure func(*manager.Options)
}

// Bridge is a manager of Setpoint behind controller-runtime's interface.
type Bridge struct {
	cluster.Cluster

	manager *manager.Manager
	cache   *bridgeCache
	options theirs.Options
	strict  bool
	metrics metricsserver.Server // or nil

	registry *prometheus.Registry // of Setpoint's metrics

	names      sync.Map // of controllers
	converters conversion.Registry
	elected    chan struct{}

	mu       sync.Mutex
	webhooks bool            // the webhook server was added
	servers  int             // of webhooks that were added
	stopping <-chan struct{} // closed when the context of Start ends; nil before Start
	added    int
}

var _ theirs.Manager = (*Bridge)(nil)

// NewManager is New with the zero Settings, for a main function that calls ctrl.NewManager.
func NewManager(cfg *rest.Config, o Options) (Manager, error) {
	b, err := New(cfg, o, Settings{})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// New returns a manager for the options of controller-runtime's. It makes no request. An option
// that has no counterpart is an error, or the log names what happens instead.
func New(cfg *rest.Config, o Options, s Settings) (*Bridge, error) {
	if cfg == nil {
		return nil, errors.New("crbridge: must specify Config; pass the result of GetConfig")
	}
	o = withDefaults(o)
	registry := prometheus.NewRegistry()
	own, err := managerOptions(o, s, registry)
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	// Without a field owner, the API server names the field manager after the user agent.
	cfg.UserAgent = cmp.Or(cfg.UserAgent, rest.DefaultKubernetesUserAgent())
	b := &Bridge{
		registry: registry,
		manager:  manager.New(cfg, own), options: o, strict: s.RefuseUndeclared,
		converters: conversion.NewRegistry(), elected: make(chan struct{}),
	}
	b.cache = newCache(b.manager.Cache(), o.Cache, s.KeepManagedFields)
	if b.Cluster, err = b.newCluster(); err != nil {
		return nil, err
	}
	if b.metrics, err = metricsserver.NewServer(o.Metrics, b.GetConfig(), b.GetHTTPClient()); err != nil {
		return nil, fmt.Errorf("crbridge: the metrics server: %w", err)
	}
	if b.options.WebhookServer, err = b.newWebhookServer(o.WebhookServer); err != nil {
		return nil, err
	}
	b.addAll()
	remarks(o)
	return b, nil
}

// newCluster returns controller-runtime's cluster, with our cache, transport and configuration.
func (b *Bridge) newCluster() (cluster.Cluster, error) {
	c := b.manager.Client()
	return cluster.New(c.Config(), func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.Logger = b.options.Scheme, b.options.MapperProvider, b.options.Logger
		o.HTTPClient, o.NewCache = eventsWithoutTerm(c.HTTPClient()), b.cache.provide
		o.NewClient, o.Client = b.options.NewClient, b.options.Client
		o.EventBroadcaster = b.options.EventBroadcaster //nolint:staticcheck // their option
	})
}

func withDefaults(o Options) Options {
	if o.Logger.GetSink() == nil {
		o.Logger = log.Log
	}
	if o.Controller.Logger.GetSink() == nil {
		o.Controller.Logger = o.Logger
	}
	if o.WebhookServer == nil {
		o.WebhookServer = webhook.NewServer(webhook.Options{})
	}
	return o
}

// managerOptions maps the options to the ones of Setpoint's manager.
func managerOptions(o Options, s Settings, r *prometheus.Registry) (manager.Options, error) {
	own := manager.Options{
		Name: cmp.Or(s.Name, o.LeaderElectionID, filepath.Base(os.Args[0])), Scheme: o.Scheme,
		Logger: slogOf(o.Logger), FieldOwner: o.Client.FieldOwner,
	}
	counts, err := metrics.New(r)
	wrong := []error{err, probes(o)}
	own.Metrics = counts
	if o.GracefulShutdownTimeout != nil {
		own.Grace = grace(*o.GracefulShutdownTimeout)
	}
	if o.NewCache != nil {
		wrong = append(wrong, errors.New("crbridge: ctrl.Options.NewCache has no counterpart; remove it, the cache is Setpoint's"))
	}
	if o.LeaderElection {
		lease, err := leaseOptions(o)
		wrong = append(wrong, err)
		own.LeaderElection = lease
	}
	own.Cache, err = cacheOptions(o.Cache)
	if wrong = append(wrong, err); s.Configure != nil {
		s.Configure(&own)
	}
	return own, errors.Join(append(wrong, own.Validate())...)
}

// grace maps a graceful shutdown timeout: with 0 a stop does not wait, and below it waits forever.
// In manager.Options, 0 is the default.
func grace(timeout time.Duration) time.Duration {
	switch {
	case timeout == 0:
		return time.Nanosecond
	case timeout < 0:
		return 365 * 24 * time.Hour
	default:
		return timeout
	}
}

func leaseOptions(o Options) (*leaderelection.Options, error) {
	lease := &leaderelection.Options{
		Lease: o.LeaderElectionID, Namespace: o.LeaderElectionNamespace, Config: o.LeaderElectionConfig, Labels: o.LeaderElectionLabels,
	}
	if o.LeaseDuration != nil {
		lease.LeaseDuration = *o.LeaseDuration
	}
	if o.RenewDeadline != nil {
		lease.RenewDeadline = *o.RenewDeadline
	}
	if o.RetryPeriod != nil {
		lease.RetryPeriod = *o.RetryPeriod
	}
	switch {
	case o.LeaderElectionResourceLockInterface != nil:
		return lease, errors.New("crbridge: ctrl.Options.LeaderElectionResourceLockInterface has no counterpart; name the Lease with LeaderElectionID")
	case o.LeaderElectionResourceLock != "" && o.LeaderElectionResourceLock != resourcelock.LeasesResourceLock:
		return lease, fmt.Errorf("crbridge: ctrl.Options.LeaderElectionResourceLock is %q; only %q is supported", o.LeaderElectionResourceLock, resourcelock.LeasesResourceLock)
	case o.LeaderElectionID == "":
		return lease, errors.New("crbridge: ctrl.Options.LeaderElectionID is empty; name the Lease")
	}
	return lease, nil
}

// Setpoint returns Setpoint's manager, for controllers, servers and checks of its own. Do not call
// its Run: Start does.
func (b *Bridge) Setpoint() *manager.Manager { return b.manager }

// Start runs everything until ctx ends, as manager.Manager.Run does. Call it once.
func (b *Bridge) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	b.stopping = ctx.Done()
	b.mu.Unlock()
	b.cache.begin()
	shared, err := sharedCollector()
	if err != nil {
		return fmt.Errorf("crbridge: registering the metrics: %w", err)
	}
	defer shared.add(b.registry)()
	return b.manager.Run(ctx)
}

// Elected returns a channel that is closed when this process leads for the first time, or at the
// start without leader election.
func (b *Bridge) Elected() <-chan struct{} { return b.elected }

// claim takes the name of a controller. Logs and metrics tell controllers apart by it.
func (b *Bridge) claim(name string) error {
	if _, taken := b.names.LoadOrStore(name, nil); taken {
		return errors.New("another controller of the manager has this name; give one of them another name with Named")
	}
	return nil
}

// AddMetricsServerExtraHandler is as in controller-runtime: without a server, only the log has it.
func (b *Bridge) AddMetricsServerExtraHandler(path string, handler http.Handler) error {
	if b.metrics == nil {
		b.options.Logger.Info("nothing serves the path, because Metrics.BindAddress is 0", "path", path)
		return nil
	}
	return b.metrics.AddExtraHandler(path, handler)
}

// AddHealthzCheck adds a check to /livez and /healthz.
func (b *Bridge) AddHealthzCheck(name string, check healthz.Checker) error {
	b.manager.AddLivezCheck(name, func(ctx context.Context) error { return check(requestOf(ctx, "/healthz/"+name)) })
	return nil
}

// AddReadyzCheck adds a check to /readyz.
func (b *Bridge) AddReadyzCheck(name string, check healthz.Checker) error {
	b.manager.AddReadyzCheck(name, func(ctx context.Context) error { return check(requestOf(ctx, "/readyz/"+name)) })
	return nil
}

func requestOf(ctx context.Context, path string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil { // a name that is no path
		return (&http.Request{}).WithContext(ctx)
	}
	return r
}

// GetWebhookServer returns a server with the options of Options.WebhookServer, and adds it at the
// first call.
func (b *Bridge) GetWebhookServer() webhook.Server {
	b.mu.Lock()
	first := !b.webhooks
	b.webhooks = true
	b.mu.Unlock()
	if first {
		b.addWebhooks(b.options.WebhookServer)
	}
	return b.options.WebhookServer
}

// GetLogger returns the options' logger.
func (b *Bridge) GetLogger() logr.Logger { return b.options.Logger }

// GetControllerOptions returns the options for controllers of level a. Their sources run on every
// replica, unless the program switches that off.
func (b *Bridge) GetControllerOptions() config.Controller {
	o := b.options.Controller
	if o.EnableWarmup == nil {
		o.EnableWarmup = new(true)
	}
	return o
}

// GetConverterRegistry returns the converters of the webhook server.
func (b *Bridge) GetConverterRegistry() conversion.Registry { return b.converters }

var _ controller.Controller = (*built)(nil)
