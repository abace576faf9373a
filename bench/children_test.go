// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// BenchmarkChildren measures a Reconcile that has nothing to do, of one of 1,000 owners with eight
// children each: four ConfigMaps, two Services and two Deployments. Beside it are eight Gets of the
// cache, and controller-runtime's CreateOrUpdate of the same children from its cache.
//
//	GOWORK=off go test -run '^$' -bench Children -count 5 .
func BenchmarkChildren(b *testing.B) {
	const owners = 1_000
	f := newFamilies(b, owners)
	b.Run("eight Gets", func(b *testing.B) { f.each(b, f.get) })
	b.Run("building what children gets", func(b *testing.B) { f.each(b, f.build) })
	b.Run("children", func(b *testing.B) { f.each(b, f.reconcile) })
	b.Run("CreateOrUpdate", func(b *testing.B) { f.each(b, f.createOrUpdate) })
	testkit.Equal(b, f.api.Count("apply", sim.ConfigMaps)+f.api.Count("update", sim.ConfigMaps), 4*owners, "writes of ConfigMaps")
}

type families struct {
	api         *sim.Server
	owners      []*corev1.ServiceAccount
	configMaps  *cache.Handle[*corev1.ConfigMap]
	services    *cache.Handle[*corev1.Service]
	deployments *cache.Handle[*appsv1.Deployment]
	set         *children.Set[*corev1.ServiceAccount]
	theirs      crclient.Client
}

func newFamilies(b *testing.B, n int) *families {
	f := &families{api: sim.New(b, scheme.Scheme)}
	ctx, stop := context.WithCancel(context.Background())
	mgr := manager.New(f.api.Config(), manager.Options{Name: "bench", Scheme: scheme.Scheme, Logger: slog.New(slog.DiscardHandler)})
	all := cache.For[*corev1.ServiceAccount](mgr.Cache())
	f.configMaps, f.services, f.deployments = cache.For[*corev1.ConfigMap](mgr.Cache()), cache.For[*corev1.Service](mgr.Cache()), cache.For[*appsv1.Deployment](mgr.Cache())
	var err error
	f.set, err = children.New(all, mgr.Client(), children.Of(f.configMaps), children.Of(f.services), children.Of(f.deployments))
	testkit.NoError(b, err)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Run(ctx) }()
	b.Cleanup(func() { stop(); testkit.NoError(b, <-ended) })
	for i := range n {
		f.api.Put(sim.Resource{Version: "v1", Kind: "ServiceAccount", Name: "serviceaccounts", Namespaced: true},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("owner-", i)}})
	}
	testkit.NoError(b, mgr.WaitReady(ctx))
	testkit.NoError(b, all.CatchUp(ctx))
	f.owners, err = all.List(ctx, cache.ListOptions{})
	testkit.NoError(b, err)
	for _, o := range f.owners {
		testkit.NoError(b, f.reconcile(ctx, o))
	}
	for _, h := range []interface{ CatchUp(context.Context) error }{f.configMaps, f.services, f.deployments} {
		testkit.NoError(b, h.CatchUp(ctx))
	}
	for _, o := range f.owners {
		testkit.NoError(b, f.reconcile(ctx, o)) // what the API server has answered
	}
	f.theirs = f.controllerRuntime(b, ctx)
	return f
}

func (f *families) controllerRuntime(b *testing.B, ctx context.Context) crclient.Client {
	c, err := crcache.New(f.api.Config(), crcache.Options{Scheme: scheme.Scheme})
	testkit.NoError(b, err)
	for _, kind := range []crclient.Object{&corev1.ConfigMap{}, &corev1.Service{}, &appsv1.Deployment{}} {
		_, err := c.GetInformer(ctx, kind, crcache.BlockUntilSynced(false))
		testkit.NoError(b, err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	b.Cleanup(func() { stop(); testkit.NoError(b, <-ended) })
	if !c.WaitForCacheSync(ctx) {
		b.Fatal("controller-runtime's cache does not sync")
	}
	theirs, err := crclient.New(f.api.Config(), crclient.Options{Scheme: scheme.Scheme, Cache: &crclient.CacheOptions{Reader: c}})
	testkit.NoError(b, err)
	return theirs
}

func (f *families) each(b *testing.B, do func(context.Context, *corev1.ServiceAccount) error) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		testkit.NoError(b, do(b.Context(), f.owners[i%len(f.owners)]))
	}
}

func childName(o *corev1.ServiceAccount, what string, i int) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: fmt.Sprintf("%s-%s-%d", o.Name, what, i)}
}

func (f *families) get(ctx context.Context, o *corev1.ServiceAccount) error {
	for i := range 4 {
		if _, err := f.configMaps.Get(ctx, childName(o, "config", i)); err != nil {
			return err
		}
	}
	for i := range 2 {
		if _, err := f.services.Get(ctx, childName(o, "service", i)); err != nil {
			return err
		}
		if _, err := f.deployments.Get(ctx, childName(o, "deployment", i)); err != nil {
			return err
		}
	}
	return nil
}

func labelsOf(o *corev1.ServiceAccount) map[string]string {
	return map[string]string{"app.kubernetes.io/instance": o.Name, "app.kubernetes.io/managed-by": "bench"}
}

func dataOf(o *corev1.ServiceAccount, i int) map[string]string {
	return map[string]string{"name": o.Name, "number": fmt.Sprint(i), "text": "some lines\nof configuration\n"}
}

func (f *families) reconcile(ctx context.Context, o *corev1.ServiceAccount) error {
	_, err := f.set.Reconcile(ctx, o, desiredOf(o)...)
	return err
}

func (f *families) build(_ context.Context, o *corev1.ServiceAccount) error {
	if len(desiredOf(o)) != 8 {
		return errors.New("not eight children")
	}
	return nil
}

func desiredOf(o *corev1.ServiceAccount) (all []client.ApplyConfiguration) {
	labels := labelsOf(o)
	for i := range 4 {
		all = append(all, coreac.ConfigMap(childName(o, "config", i).Name, o.Namespace).WithLabels(labels).WithData(dataOf(o, i)))
	}
	for i := range 2 {
		all = append(all, coreac.Service(childName(o, "service", i).Name, o.Namespace).WithLabels(labels).
			WithSpec(coreac.ServiceSpec().WithSelector(labels).WithPorts(coreac.ServicePort().WithName("http").WithPort(80))))
		all = append(all, appsac.Deployment(childName(o, "deployment", i).Name, o.Namespace).WithLabels(labels).
			WithSpec(appsac.DeploymentSpec().WithReplicas(2).WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
				WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
					WithContainers(coreac.Container().WithName("main").WithImage("busybox:1.37").WithCommand("sleep", "1h").
						WithEnv(coreac.EnvVar().WithName("OWNER").WithValue(o.Name)))))))
	}
	return all
}

func (f *families) createOrUpdate(ctx context.Context, o *corev1.ServiceAccount) error {
	labels := labelsOf(o)
	var all []crclient.Object
	mutate := map[crclient.Object]func(){}
	for i := range 4 {
		cm := &corev1.ConfigMap{}
		cm.Name = childName(o, "config", i).Name
		all, mutate[cm] = append(all, cm), func() { cm.Data = dataOf(o, i) }
	}
	for i := range 2 {
		svc, d := &corev1.Service{}, &appsv1.Deployment{}
		svc.Name, d.Name = childName(o, "service", i).Name, childName(o, "deployment", i).Name
		all = append(all, svc, d)
		mutate[svc] = func() {
			svc.Spec.Selector = labels
			if len(svc.Spec.Ports) != 1 {
				svc.Spec.Ports = make([]corev1.ServicePort, 1)
			}
			svc.Spec.Ports[0].Name, svc.Spec.Ports[0].Port = "http", 80
		}
		mutate[d] = func() {
			d.Spec.Replicas, d.Spec.Selector = new(int32(2)), &metav1.LabelSelector{MatchLabels: labels}
			d.Spec.Template.Labels = labels
			if len(d.Spec.Template.Spec.Containers) != 1 {
				d.Spec.Template.Spec.Containers = make([]corev1.Container, 1)
			}
			c := &d.Spec.Template.Spec.Containers[0]
			c.Name, c.Image, c.Command, c.Env = "main", "busybox:1.37", []string{"sleep", "1h"}, []corev1.EnvVar{{Name: "OWNER", Value: o.Name}}
		}
	}
	for _, obj := range all {
		obj.SetNamespace(o.Namespace)
		if _, err := controllerutil.CreateOrUpdate(ctx, f.theirs, obj, func() error {
			obj.SetLabels(labels)
			mutate[obj]()
			return controllerutil.SetControllerReference(o, obj, f.theirs.Scheme())
		}); err != nil {
			return err
		}
	}
	return nil
}
