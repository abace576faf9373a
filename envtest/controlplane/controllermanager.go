// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/discovery"
	clientset "k8s.io/client-go/kubernetes"
	clientgokubescheme "k8s.io/client-go/kubernetes/scheme"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	v1 "k8s.io/api/core/v1"
)

// controllers are the controllers that operators' tests need.
var controllers = []string{
	names.GarbageCollectorController,
	names.NamespaceController,
	names.DeploymentController,
	names.ReplicaSetController,
	names.JobController,
	names.ServiceAccountController,
	names.RootCACertificatePublisherController,
}

// lookPeriod is the interval at which the garbage collector runs discovery. With the default of 30
// s, it would ignore objects of a newly installed type for that long.
const lookPeriod = time.Second

type controllerManagerConfig struct {
	// Host is the URL of kube-apiserver. CA, Cert and Key are PEM.
	Host string `json:"host"`
	CA   []byte `json:"ca"`
	Cert []byte `json:"cert"`
	Key  []byte `json:"key"`
}

func runControllerManager(p *pipe) error {
	var c controllerManagerConfig
	if err := p.read(&c); err != nil {
		return err
	}
	// All state is in the API server, so it can simply exit.
	go func() { p.wait(); os.Exit(0) }()

	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	ctx := context.Background()
	completed, err := controllerManagerOptions(ctx, &restclient.Config{
		Host:            c.Host,
		TLSClientConfig: restclient.TLSClientConfig{CAData: c.CA, CertData: c.Cert, KeyData: c.Key},
		ContentConfig:   restclient.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"},
		QPS:             -1,
	})
	if err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	if err := startControllers(ctx, completed, p); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	return nil
}

// controllerManagerOptions does the work of the command's flags, without a kubeconfig file and a
// port.
func controllerManagerOptions(ctx context.Context, cfg *restclient.Config) (*config.CompletedConfig, error) {
	s, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	s.Generic.Controllers = controllers
	s.Generic.LeaderElection.LeaderElect = false
	s.Generic.ControllerStartInterval.Duration = 0
	s.SecureServing.BindPort = 0
	known, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	if err := s.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	if err := s.Validate(known, disabled, aliases); err != nil {
		return nil, err
	}
	client, err := clientset.NewForConfig(restclient.AddUserAgent(cfg, options.KubeControllerManagerUserAgent))
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	c := &config.Config{
		Client:                   client,
		Kubeconfig:               cfg,
		EventBroadcaster:         broadcaster,
		EventRecorder:            broadcaster.NewRecorder(clientgokubescheme.Scheme, v1.EventSource{Component: options.KubeControllerManagerUserAgent}),
		ComponentGlobalsRegistry: s.ComponentGlobalsRegistry,
	}
	if err := s.ApplyTo(c, known, disabled, aliases); err != nil {
		return nil, err
	}
	return c.Complete(), nil
}

// startControllers is app.Run with our garbage collector, without serving and leader election.
func startControllers(ctx context.Context, c *config.CompletedConfig, p *pipe) error {
	c.EventBroadcaster.StartRecordingToSink(&v1core.EventSinkImpl{Interface: c.Client.CoreV1().Events("")})
	defer c.EventBroadcaster.Shutdown()
	builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Kubeconfig}
	controllerContext, err := app.CreateControllerContext(ctx, c, builder, builder)
	if err != nil {
		return err
	}
	all, wanted := app.NewControllerDescriptors(), map[string]*app.ControllerDescriptor{}
	for _, name := range controllers {
		if wanted[name] = all[name]; wanted[name] == nil {
			return fmt.Errorf("Kubernetes %s has no controller %q", kubernetesVersion, name)
		}
	}
	delete(wanted, names.GarbageCollectorController)
	built, err := app.BuildControllers(ctx, controllerContext, wanted, nil, noHealthChecks{})
	if err != nil {
		return err
	}
	collector, err := newCollector(ctx, controllerContext)
	if err != nil {
		return err
	}
	controllerContext.InformerFactory.Start(ctx.Done())
	controllerContext.ObjectOrMetadataInformerFactory.Start(ctx.Done())
	close(controllerContext.InformersStarted)
	go func() {
		controllerContext.InformerFactory.WaitForCacheSync(ctx.Done())
		if err := collector.waitForSync(ctx); err == nil {
			p.serving("")
		}
	}()
	app.RunControllers(ctx, controllerContext, append(built, collector), app.ControllerStartJitter, 0)
	return errors.New("all controllers ended")
}

// noHealthChecks discards health checks: no endpoint serves them.
type noHealthChecks struct{}

func (noHealthChecks) AddHealthChecker(...healthz.HealthChecker) {}

// collector is the garbage collector with a shorter discovery interval.
type collector struct {
	*garbagecollector.GarbageCollector
	graph     *garbagecollector.GraphBuilder
	discovery discovery.DiscoveryInterface
	workers   int
}

func newCollector(ctx context.Context, c app.ControllerContext) (*collector, error) {
	const user = "generic-garbage-collector"
	client, err := c.NewClient(user)
	if err != nil {
		return nil, err
	}
	found, err := c.ClientBuilder.DiscoveryClient(user)
	if err != nil {
		return nil, err
	}
	cfg, err := c.NewClientConfig(user)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	gc, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, c.RESTMapper, c.GraphBuilder)
	if err != nil {
		return nil, err
	}
	return &collector{
		GarbageCollector: gc,
		graph:            c.GraphBuilder,
		discovery:        found,
		workers:          int(c.ComponentConfig.GarbageCollectorController.ConcurrentGCSyncs),
	}, nil
}

// Name implements app.Controller.
func (c *collector) Name() string { return names.GarbageCollectorController }

// Run runs until ctx ends, together with the process.
func (c *collector) Run(ctx context.Context) {
	go c.Sync(ctx, c.discovery, lookPeriod)
	c.GarbageCollector.Run(ctx, c.workers, lookPeriod)
}

// waitForSync returns when the collector's graph contains every existing object.
func (c *collector) waitForSync(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	tick := time.NewTicker(10 * time.Millisecond) // IsSynced has no channel
	defer tick.Stop()
	for !c.graph.IsSynced(logger) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
