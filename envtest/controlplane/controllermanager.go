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
	"k8s.io/kubernetes/pkg/controller/job"
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

const (
	collectorWorkers = 20
	namespaceWorkers = 10
	otherWorkers     = 5
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
	for name, build := range map[string]func(context.Context, clientset.Interface, *restclient.Config) error{
		"generic-garbage-collector":  m.buildCollector,
		"namespace-controller":       m.buildNamespaces,
		"deployment-controller":      m.buildDeployments,
		"replicaset-controller":      m.buildReplicaSets,
		"job-controller":             m.buildJobs,
		"service-account-controller": m.buildServiceAccounts,
		"root-ca-cert-publisher":     m.buildRootCA,
	} {
		cfg := m.as(name)
		client, err := clientset.NewForConfig(cfg)
		if err == nil {
			err = build(ctx, client, cfg)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
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
	logger := klog.FromContext(ctx)
	tick := time.NewTicker(10 * time.Millisecond) // IsSynced has no channel
	defer tick.Stop()
	for !m.graph.IsSynced(logger) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// withoutManagedFields saves memory in the caches.
func withoutManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func (m *controllerManager) loop(run func(context.Context)) { m.loops = append(m.loops, run) }

func (m *controllerManager) buildCollector(ctx context.Context, client clientset.Interface, cfg *restclient.Config) error {
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	found, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	m.graph = garbagecollector.NewDependencyGraphBuilder(ctx, objects, mapper, garbagecollector.DefaultIgnoredResources(), m.objects, m.started)
	gc, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, mapper, m.graph)
	if err != nil {
		return err
	}
	m.loop(func(ctx context.Context) { gc.Sync(ctx, found, lookPeriod) })
	m.loop(func(ctx context.Context) { gc.Run(ctx, collectorWorkers, lookPeriod) })
	return nil
}

func (m *controllerManager) buildNamespaces(ctx context.Context, client clientset.Interface, cfg *restclient.Config) error {
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	c := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		m.informers.Core().V1().Namespaces(), namespacePeriod, v1.FinalizerKubernetes)
	m.loop(func(ctx context.Context) { c.Run(ctx, namespaceWorkers) })
	return nil
}

func (m *controllerManager) buildDeployments(ctx context.Context, client clientset.Interface, _ *restclient.Config) error {
	apps := m.informers.Apps().V1()
	c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), m.informers.Core().V1().Pods(), client)
	if err != nil {
		return err
	}
	m.loop(func(ctx context.Context) { c.Run(ctx, otherWorkers) })
	return nil
}

func (m *controllerManager) buildReplicaSets(ctx context.Context, client clientset.Interface, _ *restclient.Config) error {
	c := replicaset.NewReplicaSetController(ctx, m.informers.Apps().V1().ReplicaSets(), m.informers.Core().V1().Pods(), client, replicaset.BurstReplicas)
	m.loop(func(ctx context.Context) { c.Run(ctx, otherWorkers) })
	return nil
}

func (m *controllerManager) buildJobs(ctx context.Context, client clientset.Interface, _ *restclient.Config) error {
	c, err := job.NewController(ctx, client, m.informers.Core().V1().Pods(), m.informers.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return err
	}
	m.loop(func(ctx context.Context) { c.Run(ctx, otherWorkers) })
	return nil
}

func (m *controllerManager) buildServiceAccounts(ctx context.Context, client clientset.Interface, _ *restclient.Config) error {
	core := m.informers.Core().V1()
	c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	m.loop(func(ctx context.Context) { c.Run(ctx, 1) })
	return nil
}

func (m *controllerManager) buildRootCA(_ context.Context, client clientset.Interface, cfg *restclient.Config) error {
	core := m.informers.Core().V1()
	c, err := rootca.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, cfg.CAData)
	if err != nil {
		return err
	}
	m.loop(func(ctx context.Context) { c.Run(ctx, 1) })
	return nil
}
