// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	rootca "k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

// This file runs those controllers of kube-controller-manager that operators' tests need, with its
// defaults. It does not use the command's own package: that would compile 300 packages more.

const (
	// lookPeriod is the interval of the garbage collector's discovery. With the default of 30 s, it
	// would ignore objects of a newly installed type for that long.
	lookPeriod = time.Second
	// resyncPeriod is the command's default without its random part.
	resyncPeriod    = 12 * time.Hour
	namespacePeriod = 5 * time.Minute
)

type controllerManagerConfig struct {
	// CA, Cert and Key are PEM.
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
	m := &controllerManager{config: &restclient.Config{
		Host:            c.Host,
		TLSClientConfig: restclient.TLSClientConfig{CAData: c.CA, CertData: c.Cert, KeyData: c.Key},
		ContentConfig:   restclient.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf", AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json"},
		QPS:             -1,
	}}
	if err := m.build(ctx); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	m.run(ctx, func() { p.serving("") })
	return errors.New("kube-controller-manager: all controllers ended")
}

type controllerManager struct {
	config    *restclient.Config
	informers informers.SharedInformerFactory
	objects   informerfactory.InformerFactory // the same, and of metadata for other kinds
	started   chan struct{}                   // closed when the informers have been started
	graph     *garbagecollector.GraphBuilder
	loops     []func(context.Context) // return when their context ends
}

func (m *controllerManager) as(name string) *restclient.Config {
	return restclient.AddUserAgent(restclient.CopyConfig(m.config), "kube-controller-manager/"+name)
}

func (m *controllerManager) build(ctx context.Context) error {
	client, err := clientset.NewForConfig(m.as("shared-informers"))
	if err != nil {
		return err
	}
	objects, err := metadata.NewForConfig(m.as("metadata-informers"))
	if err != nil {
		return err
	}
	m.informers = informers.NewSharedInformerFactoryWithOptions(client, resyncPeriod, informers.WithTransform(withoutManagedFields))
	m.objects = informerfactory.NewInformerFactory(m.informers,
		metadatainformer.NewSharedInformerFactoryWithOptions(objects, resyncPeriod, metadatainformer.WithTransform(withoutManagedFields)))
	m.started = make(chan struct{})
	for name, of := range map[string]struct {
		build   func(context.Context, clientset.Interface, *restclient.Config) (controller, error)
		workers int
	}{
		"generic-garbage-collector":  {m.buildCollector, 20},
		"namespace-controller":       {m.buildNamespaces, 10},
		"deployment-controller":      {m.buildDeployments, 5},
		"replicaset-controller":      {m.buildReplicaSets, 5},
		"job-controller":             {m.buildJobs, 5},
		"service-account-controller": {m.buildServiceAccounts, 1},
		"root-ca-cert-publisher":     {m.buildRootCA, 1},
	} {
		cfg := m.as(name)
		client, err := clientset.NewForConfig(cfg)
		var c controller
		if err == nil {
			c, err = of.build(ctx, client, cfg)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.loops = append(m.loops, func(ctx context.Context) { c.Run(ctx, of.workers) })
	}
	return nil
}

// controller runs until ctx ends.
type controller interface {
	Run(ctx context.Context, workers int)
}

// run calls ready when the caches have synced, and returns when all controllers have ended.
func (m *controllerManager) run(ctx context.Context, ready func()) {
	m.informers.Start(ctx.Done())
	m.objects.Start(ctx.Done())
	close(m.started)
	var running sync.WaitGroup
	for _, loop := range m.loops {
		running.Go(func() { loop(ctx) })
	}
	m.informers.WaitForCacheSync(ctx.Done())
	if err := m.waitForGraph(ctx); err == nil {
		ready()
	}
	running.Wait()
}

// waitForGraph returns when the garbage collector's graph contains every existing object.
func (m *controllerManager) waitForGraph(ctx context.Context) error {
	// IsSynced has no channel.
	synced := func(ctx context.Context) (bool, error) { return m.graph.IsSynced(klog.FromContext(ctx)), nil }
	return wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, synced)
}

// withoutManagedFields saves memory in the caches.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// collector is the garbage collector, whose Run needs the interval.
type collector struct {
	*garbagecollector.GarbageCollector
}

func (c collector) Run(ctx context.Context, workers int) {
	c.GarbageCollector.Run(ctx, workers, lookPeriod)
}

func (m *controllerManager) buildCollector(ctx context.Context, client clientset.Interface, cfg *restclient.Config) (controller, error) {
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	m.graph = garbagecollector.NewDependencyGraphBuilder(ctx, objects, mapper, garbagecollector.DefaultIgnoredResources(), m.objects, m.started)
	gc, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, mapper, m.graph)
	m.loops = append(m.loops, func(ctx context.Context) { gc.Sync(ctx, found, lookPeriod) })
	return collector{gc}, err
}

func (m *controllerManager) buildNamespaces(ctx context.Context, client clientset.Interface, cfg *restclient.Config) (controller, error) {
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		m.informers.Core().V1().Namespaces(), namespacePeriod, v1.FinalizerKubernetes), nil
}

func (m *controllerManager) buildDeployments(ctx context.Context, client clientset.Interface, _ *restclient.Config) (controller, error) {
	apps := m.informers.Apps().V1()
	return deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), m.informers.Core().V1().Pods(), client)
}

func (m *controllerManager) buildReplicaSets(ctx context.Context, client clientset.Interface, _ *restclient.Config) (controller, error) {
	core, apps := m.informers.Core().V1(), m.informers.Apps().V1()
	return replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, replicaset.BurstReplicas), nil
}

func (m *controllerManager) buildServiceAccounts(ctx context.Context, client clientset.Interface, _ *restclient.Config) (controller, error) {
	core := m.informers.Core().V1()
	return serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
}

func (m *controllerManager) buildRootCA(_ context.Context, client clientset.Interface, cfg *restclient.Config) (controller, error) {
	core := m.informers.Core().V1()
	return rootca.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, cfg.CAData)
}
