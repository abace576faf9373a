// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
)

// ForResource returns the informer of a built-in resource, as its accessor does, with a lister.
// Other resources are an error.
func (f *factory) ForResource(of schema.GroupVersionResource) (informers.GenericInformer, error) {
	// client-go's informer runs only if the cache cannot list the kind.
	ours, namespace, tweak := f.scoped()
	standard, err := informers.NewSharedInformerFactoryWithOptions(f.client, resyncCheck,
		informers.WithNamespace(namespace), informers.WithTweakListOptions(tweak)).ForResource(of)
	obj := builtIn(of)
	if err != nil || obj == nil {
		return nil, fmt.Errorf("%s is not a built-in resource; use cache.For with its Go type, or cache.ForScope with *unstructured.Unstructured", of)
	}
	shared := ours.InformerFor(obj, func(kubernetes.Interface, time.Duration) toolscache.SharedIndexInformer {
		return standard.Informer()
	})
	return generic{shared, of.GroupResource()}, nil
}

// builtIn returns an example object of a resource, or nil. It looks for a kind of client-go's
// scheme with a list and the usual plural.
func builtIn(of schema.GroupVersionResource) runtime.Object {
	for kind, t := range scheme.Scheme.KnownTypes(of.GroupVersion()) {
		gvk := of.GroupVersion().WithKind(kind)
		if plural, _ := meta.UnsafeGuessKindToResource(gvk); plural != of || !scheme.Scheme.Recognizes(listKind(gvk)) {
			continue
		}
		if obj, ok := reflect.New(t).Interface().(cache.Object); ok {
			return obj
		}
	}
	return nil
}

type generic struct {
	shared   toolscache.SharedIndexInformer
	resource schema.GroupResource
}

func (g generic) Informer() toolscache.SharedIndexInformer { return g.shared }

func (g generic) Lister() toolscache.GenericLister {
	return toolscache.NewGenericLister(g.shared.GetIndexer(), g.resource)
}

// scoped returns the arguments of an API group's New. Namespace and tweak are for informers that
// use the client.
func (f *factory) scoped() (of accessors, namespace string, tweak internalinterfaces.TweakListOptionsFunc) {
	namespace, _ = f.namespaceOf(schema.GroupKind{}) // of several, InformerFor reports the error
	return accessors{f}, namespace, f.clientTweak()
}

// The accessors of the API groups.

func (f *factory) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f.scoped())
}
func (f *factory) Internal() apiserverinternal.Interface { return apiserverinternal.New(f.scoped()) }
func (f *factory) Apps() apps.Interface                  { return apps.New(f.scoped()) }
func (f *factory) Autoscaling() autoscaling.Interface    { return autoscaling.New(f.scoped()) }
func (f *factory) Batch() batch.Interface                { return batch.New(f.scoped()) }
func (f *factory) Certificates() certificates.Interface  { return certificates.New(f.scoped()) }
func (f *factory) Coordination() coordination.Interface  { return coordination.New(f.scoped()) }
func (f *factory) Core() core.Interface                  { return core.New(f.scoped()) }
func (f *factory) Discovery() discovery.Interface        { return discovery.New(f.scoped()) }
func (f *factory) Events() events.Interface              { return events.New(f.scoped()) }
func (f *factory) Extensions() extensions.Interface      { return extensions.New(f.scoped()) }
func (f *factory) Flowcontrol() flowcontrol.Interface    { return flowcontrol.New(f.scoped()) }
func (f *factory) Lifecycle() lifecycle.Interface        { return lifecycle.New(f.scoped()) }
func (f *factory) Networking() networking.Interface      { return networking.New(f.scoped()) }
func (f *factory) Node() node.Interface                  { return node.New(f.scoped()) }
func (f *factory) Policy() policy.Interface              { return policy.New(f.scoped()) }
func (f *factory) Rbac() rbac.Interface                  { return rbac.New(f.scoped()) }
func (f *factory) Resource() resource.Interface          { return resource.New(f.scoped()) }
func (f *factory) Scheduling() scheduling.Interface      { return scheduling.New(f.scoped()) }
func (f *factory) Storage() storage.Interface            { return storage.New(f.scoped()) }
func (f *factory) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f.scoped())
}
