// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// packedKind is a kind and the ways in which the contestants keep it.
type packedKind struct {
	name, title string
	gvk         schema.GroupVersionKind
	plural      string
	object      func(i int, s state) runtime.Object

	clusterScoped bool

	informer func(cfg *rest.Config) (toolscache.SharedIndexInformer, error)
	runtimes func() crclient.Object // of controller-runtime
	handle   func(c *cache.Cache, s cache.Scope) reads
}

// packedKinds are the kinds that are measured. The third and the fourth are the same objects.
var packedKinds = []*packedKind{
	{
		name: "pods", title: "Pods", gvk: corev1.SchemeGroupVersion.WithKind("Pod"), plural: "pods",
		object: func(i int, s state) runtime.Object { return podOf(i, s) },
		informer: builtInInformer(func(f clientinformers.SharedInformerFactory) toolscache.SharedIndexInformer {
			return f.Core().V1().Pods().Informer()
		}),
		runtimes: func() crclient.Object { return &corev1.Pod{} },
		handle:   handleOf[*corev1.Pod],
	},
	{
		name: "configmaps", title: "small ConfigMaps", gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), plural: "configmaps",
		object: func(i int, s state) runtime.Object { return configMapOf(i, s) },
		informer: builtInInformer(func(f clientinformers.SharedInformerFactory) toolscache.SharedIndexInformer {
			return f.Core().V1().ConfigMaps().Informer()
		}),
		runtimes: func() crclient.Object { return &corev1.ConfigMap{} },
		handle:   handleOf[*corev1.ConfigMap],
	},
	{
		name: "typed", title: "custom resources, typed", gvk: benchApps.WithKind("App"), plural: "apps",
		object:   func(i int, s state) runtime.Object { return appOf(i, s) },
		informer: typedInformer,
		runtimes: func() crclient.Object { return &App{} },
		handle:   handleOf[*App],
	},
	{
		name: "unstructured", title: "custom resources, unstructured", gvk: benchApps.WithKind("App"), plural: "apps",
		object:   func(i int, s state) runtime.Object { return appOf(i, s) },
		informer: unstructuredInformer,
		runtimes: func() crclient.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(benchApps.WithKind("App"))
			return u
		},
		handle: func(c *cache.Cache, s cache.Scope) reads {
			s.Kind = benchApps.WithKind("App")
			return handleOf[*unstructured.Unstructured](c, s)
		},
	},
	nodesKind,
}

func packedKindOf(name string) *packedKind {
	for _, k := range packedKinds {
		if k.name == name {
			return k
		}
		if "lean "+k.name == name {
			return leanKind(*k)
		}
	}
	return nil
}

// reads are the methods of a handle that the measurements need.
type reads struct {
	sync func(ctx context.Context) error
	get  func(ctx context.Context, k key) (cache.Object, error)
	kind func(h handler.Handler[key], predicates ...handler.Predicate) source.Source[key]
}

func handleOf[T cache.Object](c *cache.Cache, s cache.Scope) reads {
	h := cache.ForScope[T](c, s)
	return reads{
		sync: h.WaitForSync,
		get:  func(ctx context.Context, k key) (cache.Object, error) { return h.Get(ctx, k) },
		kind: func(by handler.Handler[key], predicates ...handler.Predicate) source.Source[key] {
			return source.Kind(h, by, predicates...)
		},
	}
}

// builtInInformer returns the informer of a factory, which reads protobuf.
func builtInInformer(of func(clientinformers.SharedInformerFactory) toolscache.SharedIndexInformer) func(*rest.Config) (toolscache.SharedIndexInformer, error) {
	return func(cfg *rest.Config) (toolscache.SharedIndexInformer, error) {
		cfg = rest.CopyConfig(cfg)
		cfg.ContentType = runtime.ContentTypeProtobuf
		cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		c, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		return of(clientinformers.NewSharedInformerFactory(c, 0)), nil
	}
}

// typedInformer returns an informer as generated code makes it for a custom resource.
func typedInformer(cfg *rest.Config) (toolscache.SharedIndexInformer, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath = &benchApps, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(newPackedScheme()).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	lw := toolscache.NewListWatchFromClient(c, "apps", metav1.NamespaceAll, fields.Everything())
	return toolscache.NewSharedIndexInformer(lw, &App{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}), nil
}

func unstructuredInformer(cfg *rest.Config) (toolscache.SharedIndexInformer, error) {
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return dynamicinformer.NewDynamicSharedInformerFactory(c, 0).ForResource(benchApps.WithResource("apps")).Informer(), nil
}
