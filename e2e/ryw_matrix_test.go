// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/informers"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	roles       = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func forbidden(resource string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
}

func ignore[T any](_ T, err error) error { return err }

type prepare = func(w *ownWrites) plan

// ownWritesEntries is the matrix.
func ownWritesEntries() []TableEntry {
	var all []TableEntry
	add := func(name string, want expectation, p prepare) {
		all = append(all, Entry(name, NodeTimeout(patience), want, p))
	}
	clientEntries(add)
	deleteEntries(add)
	scopeEntries(add)
	selectorEntries(add)
	subresourceEntries(add)
	return all
}

// onMaps is a write to ConfigMaps. "a" exists, and all are read.
func onMaps(write func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error) prepare {
	return func(w *ownWrites) plan {
		a := w.there(w.configMap("a"))
		return plan{views: []view{w.maps()}, write: func(ctx context.Context) error { return write(ctx, w, a.DeepCopy()) }}
	}
}

// oneByOne delivers the events of several writes one by one: between them, a cache shows some of
// the writes.
func oneByOne(p prepare) prepare {
	return func(w *ownWrites) plan {
		planned := p(w)
		planned.oneByOne = true
		return planned
	}
}

// clientEntries are writes of all kinds, with all clients.
func clientEntries(add func(string, expectation, prepare)) {
	data := map[string]string{"x": "y"}
	patch := []byte(`{"data":{"x":"y"}}`)
	add("create, our handle", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.own().Create(ctx, w.configMap("b")))
	}))
	add("update, our handle", waits, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		a.Data = data
		return ignore(w.own().Update(ctx, a))
	}))
	add("patch, our handle", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.own().Patch(ctx, w.named("a"), types.MergePatchType, patch))
	}))
	add("apply that creates, our handle", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.own().Apply(ctx, coreac.ConfigMap("b", w.namespace).WithData(data)))
	}))
	add("apply that changes, our handle", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.own().Apply(ctx, coreac.ConfigMap("a", w.namespace).WithData(data)))
	}))
	add("generateName, clientset with protobuf", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		m := w.configMap("")
		m.GenerateName = "b-"
		return ignore(w.clientset.CoreV1().ConfigMaps(w.namespace).Create(ctx, m, metav1.CreateOptions{}))
	}))
	add("update, clientset with JSON", waits, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		a.Data = data
		return ignore(w.json.CoreV1().ConfigMaps(w.namespace).Update(ctx, a, metav1.UpdateOptions{}))
	}))
	add("patch, dynamic client", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.dyn.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "a", types.MergePatchType, patch, metav1.PatchOptions{}))
	}))
	add("patch, metadata client", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.meta.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}))
	}))
	add("create, REST client", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.clientset.CoreV1().RESTClient().Post().Namespace(w.namespace).Resource("configmaps").Body(w.configMap("b")).Do(ctx).Error()
	}))
	add("create, generated client of a custom resource", waits, func(w *ownWrites) plan {
		installLamps(w.ctx)
		r, err := w.client.RESTClient(lamps.GroupVersion().WithKind("Lamp"))
		Expect(err).NotTo(HaveOccurred())
		generated := gentype.NewClient[*Lamp](lamps.Resource, r, runtime.NewParameterCodec(w.client.Scheme()), w.namespace, func() *Lamp { return &Lamp{} })
		// other specs have left lamps that do not fit the Go type
		here := cache.ForScope[*Lamp](w.cache, cache.Scope{Namespaces: cache.NewSet(w.namespace)})
		return plan{views: []view{viewOf(w, here, lamps, metav1.ListOptions{})}, write: func(ctx context.Context) error {
			l := &Lamp{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Watts: 5}
			l.SetGroupVersionKind(lamps.GroupVersion().WithKind("Lamp"))
			return ignore(generated.Create(ctx, l, metav1.CreateOptions{}))
		}}
	})
	add("many writes", waits, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		for _, name := range []string{"b", "c", "d", "e"} {
			if _, err := w.own().Create(ctx, w.configMap(name)); err != nil {
				return err
			}
		}
		return w.own().Delete(ctx, w.named("c"))
	}))
	add("an update that changes nothing", atOnce, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		return ignore(w.own().Update(ctx, a))
	}))
	add("a patch that changes nothing", atOnce, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.own().Patch(ctx, w.named("a"), types.MergePatchType, []byte(`{"data":{"x":null}}`)))
	}))
	add("a patch that changes nothing, of a version that is not shown yet", waits, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		a.Data = data
		_, err := w.direct.CoreV1().ConfigMaps(w.namespace).Update(ctx, a, metav1.UpdateOptions{})
		return errors.Join(err, ignore(w.own().Patch(ctx, w.named("a"), types.MergePatchType, patch)))
	}))
	add("apply, twice", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		apply := func() error { return ignore(w.own().Apply(ctx, coreac.ConfigMap("b", w.namespace).WithData(data))) }
		return errors.Join(apply(), apply())
	}))
	add("a dry run", atOnce, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.clientset.CoreV1().ConfigMaps(w.namespace).Create(ctx, w.configMap("b"), metav1.CreateOptions{DryRun: []string{"All"}}))
	}))
	add("a write that is refused", atOnce, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		if err := ignore(w.own().Create(ctx, w.configMap("a"))); !apierrors.IsAlreadyExists(err) {
			return errors.Join(errors.New("it was not refused"), err)
		}
		return nil
	}))
	add("a write whose answer is lost", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}}, Lose: true, Times: 1})
		if err := ignore(w.own().Create(ctx, w.configMap("b"))); err == nil {
			return errors.New("there was an answer")
		}
		return nil
	}))
}

// deleteEntries are deletions.
func deleteEntries(add func(string, expectation, prepare)) {
	const finalizer = "example.test/a"
	none := []byte(`{"metadata":{"finalizers":null}}`)
	held := func(deleting bool, write func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error) prepare {
		return func(w *ownWrites) plan {
			a := w.configMap("a")
			a.Finalizers = []string{finalizer}
			a = w.there(a)
			DeferCleanup(func(ctx SpecContext) {
				_, _ = w.direct.CoreV1().ConfigMaps(w.namespace).Patch(ctx, "a", types.MergePatchType, none, metav1.PatchOptions{})
			})
			if deleting {
				Expect(w.direct.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx, "a", metav1.DeleteOptions{})).To(Succeed())
				var err error
				a, err = w.direct.CoreV1().ConfigMaps(w.namespace).Get(w.ctx, "a", metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
			return plan{views: []view{w.maps()}, write: func(ctx context.Context) error { return write(ctx, w, a.DeepCopy()) }}
		}
	}
	remove := func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.own().Delete(ctx, w.named("a"))
	}
	add("delete", waits, onMaps(remove))
	add("delete of an object with a finalizer", waits, held(false, remove))
	add("the last finalizer, by update", waits, held(true, func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		a.Finalizers = nil
		return ignore(w.own().Update(ctx, a))
	}))
	add("the last finalizer, by merge patch with the clientset", waits, held(true, func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.clientset.CoreV1().ConfigMaps(w.namespace).Patch(ctx, "a", types.MergePatchType, none, metav1.PatchOptions{}))
	}))
	add("the last finalizer, by JSON patch with the metadata client", waits, held(true, func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return ignore(w.meta.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}))
	}))
	add("delete and the last finalizer", waits, held(false, func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		return errors.Join(remove(ctx, w, a), ignore(w.own().Patch(ctx, w.named("a"), types.MergePatchType, none)))
	}))
	replace := onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		return errors.Join(remove(ctx, w, a), ignore(w.own().Create(ctx, w.configMap("a"))))
	})
	add("delete and create of a name", waits, replace)
	add("delete and create of a name, whose events come one by one", waits, oneByOne(replace))
	add("create and delete of a name", waits, oneByOne(onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return errors.Join(ignore(w.own().Create(ctx, w.configMap("b"))), w.own().Delete(ctx, w.named("b")))
	})))
	add("create and delete of a name, with a finalizer", waits, oneByOne(onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		b := w.configMap("b")
		b.Finalizers = []string{finalizer}
		_, err := w.own().Create(ctx, b)
		return errors.Join(err, w.own().Delete(ctx, w.named("b")), ignore(w.own().Patch(ctx, w.named("b"), types.MergePatchType, none)))
	})))
	add("delete of a name that somebody else creates", waits, func(w *ownWrites) plan {
		a := w.there(w.configMap("a"))
		v := w.maps()
		all := v.cached
		v.cached = func(ctx context.Context) (map[string]string, error) {
			states, err := all(ctx)
			maps.DeleteFunc(states, func(_, state string) bool { return !strings.HasPrefix(state, string(a.UID)) })
			return states, err
		}
		// No key waits for the other one.
		v.live = func(context.Context) (map[string]string, error) { return nil, nil }
		return plan{views: []view{v}, write: func(ctx context.Context) error {
			return errors.Join(remove(ctx, w, a), ignore(w.direct.CoreV1().ConfigMaps(w.namespace).Create(ctx, w.configMap("a"), metav1.CreateOptions{})))
		}}
	})
	add("delete, dynamic client", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.dyn.Resource(configMaps).Namespace(w.namespace).Delete(ctx, "a", metav1.DeleteOptions{})
	}))
	add("delete of what is gone", atOnce, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		if err := w.own().Delete(ctx, w.named("b")); !apierrors.IsNotFound(err) {
			return errors.New("it was there")
		}
		return nil
	}))
	collect := func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.clientset.CoreV1().ConfigMaps(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=a"})
	}
	add("deletecollection", waits, onMaps(collect))
	add("deletecollection of what has a finalizer", waits, held(false, collect))
	all := func(w *ownWrites, selector string) client.ListOptions {
		return client.ListOptions{Namespace: w.namespace, Fields: fields.ParseSelectorOrDie(selector)}
	}
	add("DeleteAll", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.own().DeleteAll(ctx, all(w, "metadata.name=a"))
	}))
	add("DeleteAll of what has a finalizer", waits, held(false, func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.own().DeleteAll(ctx, all(w, "metadata.name=a"))
	}))
	add("DeleteAll of nothing", atOnce, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.own().DeleteAll(ctx, all(w, "metadata.name=none"))
	}))
	paint := func(m *corev1.ConfigMap) error {
		m.Data = map[string]string{"color": "blue"}
		return nil
	}
	add("CreateOrUpdate, a create", waits, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		_, _, err := client.CreateOrUpdate(ctx, w.own(), w.configMap("b"), paint)
		return err
	}))
	add("CreateOrUpdate, an update", waits, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		_, _, err := client.CreateOrUpdate(ctx, w.own(), a, paint)
		return err
	}))
	add("CreateOrUpdate, no change", atOnce, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		_, _, err := client.CreateOrUpdate(ctx, w.own(), a, func(*corev1.ConfigMap) error { return nil })
		return err
	}))
	add("CreateOrPatch, a patch", waits, onMaps(func(ctx context.Context, w *ownWrites, a *corev1.ConfigMap) error {
		_, _, err := client.CreateOrPatch(ctx, w.own(), a, paint)
		return err
	}))
	add("deletecollection of nothing", atOnce, onMaps(func(ctx context.Context, w *ownWrites, _ *corev1.ConfigMap) error {
		return w.clientset.CoreV1().ConfigMaps(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "no=such"})
	}))
}

// scopeEntries are scopes of declared reads.
func scopeEntries(add func(string, expectation, prepare)) {
	create := func(w *ownWrites, namespace string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			m := w.configMap("b")
			m.Namespace = namespace
			return ignore(w.own().Create(ctx, m))
		}
	}
	add("a cluster-scoped kind", waits, func(w *ownWrites) plan {
		h := client.For[*rbacv1.ClusterRole](w.client)
		DeferCleanup(func(ctx SpecContext) { _ = h.Delete(ctx, types.NamespacedName{Name: w.namespace}) })
		return plan{views: []view{viewOf(w, cache.For[*rbacv1.ClusterRole](w.cache), roles, metav1.ListOptions{})}, write: func(ctx context.Context) error {
			return ignore(h.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}))
		}}
	})
	add("delete and create of a cluster-scoped kind", waits, func(w *ownWrites) plan {
		h := client.For[*rbacv1.ClusterRole](w.client)
		role := func() *rbacv1.ClusterRole {
			return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		}
		_, err := h.Create(w.ctx, role())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { _ = h.Delete(ctx, types.NamespacedName{Name: w.namespace}) })
		return plan{views: []view{viewOf(w, cache.For[*rbacv1.ClusterRole](w.cache), roles, metav1.ListOptions{})}, write: func(ctx context.Context) error {
			return errors.Join(h.Delete(ctx, types.NamespacedName{Name: w.namespace}), ignore(h.Create(ctx, role())))
		}}
	})
	several := func(w *ownWrites) view {
		return viewOf(w, cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{Namespaces: cache.NewSet("default", w.namespace)}), configMaps, metav1.ListOptions{})
	}
	add("several namespaces, one of them", waits, func(w *ownWrites) plan {
		return plan{views: []view{several(w)}, write: create(w, w.namespace)}
	})
	add("several namespaces, another one", atOnce, func(w *ownWrites) plan {
		another, err := cluster.Namespace(w.ctx, "another-")
		Expect(err).NotTo(HaveOccurred())
		return plan{views: []view{several(w)}, write: create(w, another)}
	})
	add("single names, one of them", waits, func(w *ownWrites) plan {
		h := cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{Names: cache.NewSet(w.named("a"), w.named("b"))})
		return plan{views: []view{viewOf(w, h, configMaps, metav1.ListOptions{})}, write: create(w, w.namespace)}
	})
	add("single names, another one", atOnce, func(w *ownWrites) plan {
		h := cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{Names: cache.NewSet(w.named("a"))})
		return plan{reads: []controller.Readable{h}, write: create(w, w.namespace)}
	})
	add("a kind that nobody watches", atOnce, func(w *ownWrites) plan {
		return plan{views: []view{w.maps()}, write: func(ctx context.Context) error {
			return ignore(client.For[*corev1.Secret](w.client).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s"}}))
		}}
	})
	add("a kind that another controller watches", atOnce, func(w *ownWrites) plan {
		h := cache.For[*corev1.Secret](w.cache)
		c, _ := mirrorOf("another", h)
		w.running.Go(func() {
			defer GinkgoRecover()
			Expect(c.Run(w.ctx)).To(Succeed())
		})
		return plan{views: []view{w.maps()}, synced: c.Synced(), write: func(ctx context.Context) error {
			return ignore(client.For[*corev1.Secret](w.client).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s"}}))
		}}
	})
	add("another API server", atOnce, func(w *ownWrites) plan {
		elsewhere, err := client.New(cluster.Config(), client.Options{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(elsewhere.Close)
		return plan{reads: []controller.Readable{w.maps().handle}, write: func(ctx context.Context) error {
			return ignore(client.For[*corev1.ConfigMap](elsewhere).Create(ctx, w.configMap("b")))
		}}
	})
	add("a kind that is watched", waits, func(w *ownWrites) plan {
		h := cache.For[*corev1.ConfigMap](w.cache)
		v := viewOf(w, h, configMaps, metav1.ListOptions{})
		return plan{watches: []source.Source[types.NamespacedName]{source.Kind(h, handler.Self())}, views: []view{v}, write: create(w, w.namespace)}
	})
	add("a kind whose other name is watched", waits, func(w *ownWrites) plan {
		h := cache.For[*eventsv1.Event](w.cache)
		r := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
		return plan{views: []view{viewOf(w, h, r, metav1.ListOptions{})}, write: func(ctx context.Context) error {
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: w.namespace}, InvolvedObject: corev1.ObjectReference{Namespace: w.namespace}}
			return ignore(w.clientset.CoreV1().Events(w.namespace).Create(ctx, e, metav1.CreateOptions{}))
		}}
	})
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	views := func(w *ownWrites) []view {
		typed := cache.For[*corev1.ConfigMap](w.cache)
		loose := cache.ForScope[*unstructured.Unstructured](w.cache, cache.Scope{Kind: kind, Namespaces: cache.NewSet(w.namespace)})
		names := cache.ForScope[*metav1.PartialObjectMetadata](w.cache, cache.Scope{Kind: kind, Names: cache.NewSet(w.named("a"), w.named("b"))})
		return []view{
			viewOf(w, typed, configMaps, metav1.ListOptions{}), viewOf(w, loose, configMaps, metav1.ListOptions{}), viewOf(w, names, configMaps, metav1.ListOptions{}),
		}
	}
	add("views of one resource, of which the typed one is late", waits, func(w *ownWrites) plan {
		return plan{views: views(w), freeze: fault.Match{Func: func(r *fault.Request) bool { return r.Namespace == "" }}, write: create(w, w.namespace)}
	})
	add("views of one resource, of which the unstructured one is late", waits, func(w *ownWrites) plan {
		return plan{views: views(w), freeze: fault.Match{Func: func(r *fault.Request) bool { return r.Namespace != "" && r.Name == "" }}, write: create(w, w.namespace)}
	})
	add("views of one resource, of which that of metadata is late", waits, func(w *ownWrites) plan {
		return plan{views: views(w), freeze: fault.Match{Name: "b"}, write: create(w, w.namespace)}
	})
	adopt := func(w *ownWrites) informers.SharedInformerFactory {
		factory := informers.NewSharedInformerFactory(w.clientset, 0)
		_ = factory.Core().V1().ConfigMaps().Informer()
		factory.StartWithContext(w.ctx)
		DeferCleanup(func() {
			w.stop()
			factory.Shutdown()
		})
		return factory
	}
	add("an informer of the host's that is adopted", waits, func(w *ownWrites) plan {
		h := cache.Adopt[*corev1.ConfigMap](w.cache, adopt(w).Core().V1().ConfigMaps().Informer(), cache.AdoptOptions{})
		return plan{views: []view{viewOf(w, h, configMaps, metav1.ListOptions{})}, write: create(w, w.namespace)}
	})
	add("an informer of the host's that is watched", waits, func(w *ownWrites) plan {
		informer := adopt(w).Core().V1().ConfigMaps().Informer()
		src := source.Kind(cache.Adopt[*corev1.ConfigMap](nil, informer, cache.AdoptOptions{}), handler.Self())
		v := w.maps()
		v.handle, v.cached = nil, func(context.Context) (map[string]string, error) {
			var all []metav1.Object
			for _, obj := range informer.GetStore().List() {
				all = append(all, obj.(*corev1.ConfigMap))
			}
			return w.states(all), nil
		}
		return plan{watches: []source.Source[types.NamespacedName]{src}, views: []view{v}, write: create(w, w.namespace)}
	})
}

// selectorEntries are scopes that may exclude a write. A key does not wait for a write that causes
// no event, not even until a bookmark.
func selectorEntries(add func(string, expectation, prepare)) {
	in := metav1.ListOptions{LabelSelector: "in=yes"}
	labelled := func(w *ownWrites) view {
		return viewOf(w, cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"in": "yes"})}), configMaps, in)
	}
	// selected returns a scope that selects "in" and not "out".
	selected := func(write func(ctx context.Context, w *ownWrites, in, out *corev1.ConfigMap) error) prepare {
		return func(w *ownWrites) plan {
			in, out := w.there(w.configMap("in", "in")), w.there(w.configMap("out"))
			return plan{views: []view{labelled(w)}, write: func(ctx context.Context) error { return write(ctx, w, in.DeepCopy(), out.DeepCopy()) }}
		}
	}
	data := map[string]string{"x": "y"}
	add("a selector, create of what it selects", waits, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return ignore(w.own().Create(ctx, w.configMap("b", "in")))
	}))
	add("a selector, create of what it excludes", atOnce, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return ignore(w.own().Create(ctx, w.configMap("b")))
	}))
	add("a selector, update of what it excludes, dynamic client", atOnce, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return ignore(w.dyn.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "out", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{}))
	}))
	add("a selector, update of what it excludes, metadata client", atOnce, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return ignore(w.meta.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "out", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}))
	}))
	add("a selector, update of what it excludes, clientset with protobuf", atOnce, selected(func(ctx context.Context, w *ownWrites, _, out *corev1.ConfigMap) error {
		out.Data = data
		return ignore(w.clientset.CoreV1().ConfigMaps(w.namespace).Update(ctx, out, metav1.UpdateOptions{}))
	}))
	add("a selector, update of what it selects", waits, selected(func(ctx context.Context, w *ownWrites, in, _ *corev1.ConfigMap) error {
		in.Data = data
		return ignore(w.own().Update(ctx, in))
	}))
	add("a selector, the label removed", waits, selected(func(ctx context.Context, w *ownWrites, in, _ *corev1.ConfigMap) error {
		in.Labels = nil
		return ignore(w.own().Update(ctx, in))
	}))
	add("a selector, the label removed, metadata client", waits, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return ignore(w.meta.Resource(configMaps).Namespace(w.namespace).Patch(ctx, "in", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}))
	}))
	add("a selector, the label added", waits, selected(func(ctx context.Context, w *ownWrites, _, out *corev1.ConfigMap) error {
		metav1.SetMetaDataLabel(&out.ObjectMeta, "in", "yes")
		return ignore(w.own().Update(ctx, out))
	}))
	add("a selector, the label added and removed", waits, oneByOne(selected(func(ctx context.Context, w *ownWrites, _, out *corev1.ConfigMap) error {
		metav1.SetMetaDataLabel(&out.ObjectMeta, "in", "yes")
		out, err := w.own().Update(ctx, out)
		if err != nil {
			return err
		}
		out.Labels = nil
		return ignore(w.own().Update(ctx, out))
	})))
	add("a selector, the label removed and added", waits, selected(func(ctx context.Context, w *ownWrites, in, _ *corev1.ConfigMap) error {
		in.Labels = nil
		in, err := w.own().Update(ctx, in)
		if err != nil {
			return err
		}
		metav1.SetMetaDataLabel(&in.ObjectMeta, "in", "yes")
		return ignore(w.own().Update(ctx, in))
	}))
	add("a selector, delete of what it selects", waits, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return w.own().Delete(ctx, w.named("in"))
	}))
	add("a selector, delete of what it excludes", atOnce, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return w.own().Delete(ctx, w.named("out"))
	}))
	add("a selector, deletecollection of all", waits, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return w.clientset.CoreV1().ConfigMaps(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}))
	add("a selector, deletecollection of what it excludes", atOnce, selected(func(ctx context.Context, w *ownWrites, _, _ *corev1.ConfigMap) error {
		return w.clientset.CoreV1().ConfigMaps(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "in!=yes"})
	}))
	create := func(name string, kind corev1.SecretType) prepare {
		return func(w *ownWrites) plan {
			const selector = "metadata.name=in,type=Opaque"
			f, err := fields.ParseSelector(selector)
			Expect(err).NotTo(HaveOccurred())
			h := cache.ForScope[*corev1.Secret](w.cache, cache.Scope{Fields: f})
			return plan{views: []view{viewOf(w, h, secrets, metav1.ListOptions{FieldSelector: selector})}, write: func(ctx context.Context) error {
				s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Type: kind}
				return ignore(client.For[*corev1.Secret](w.client).Create(ctx, s))
			}}
		}
	}
	add("a field selector, create of what it selects", waits, create("in", corev1.SecretTypeOpaque))
	add("a field selector, create of another name", atOnce, create("out", corev1.SecretTypeOpaque))
	add("a field selector, create of another type", atOnce, create("in", "example.test/other"))
}

// subresourceEntries are writes whose answers contain another object, or none.
func subresourceEntries(add func(string, expectation, prepare)) {
	onSelected := func(selector labels.Selector, o metav1.ListOptions, write func(ctx context.Context, w *ownWrites, d *appsv1.Deployment) error) prepare {
		return func(w *ownWrites) plan {
			d := w.deployment("d")
			v := viewOf(w, cache.ForScope[*appsv1.Deployment](w.cache, cache.Scope{Labels: selector}), deployments, o)
			return plan{views: []view{v}, write: func(ctx context.Context) error { return write(ctx, w, d.DeepCopy()) }}
		}
	}
	onDeployments := func(write func(ctx context.Context, w *ownWrites, d *appsv1.Deployment) error) prepare {
		return onSelected(nil, metav1.ListOptions{}, write)
	}
	add("status, our handle", waits, onDeployments(func(ctx context.Context, w *ownWrites, d *appsv1.Deployment) error {
		d.Status.ObservedGeneration = 1
		return ignore(client.For[*appsv1.Deployment](w.client).UpdateStatus(ctx, d))
	}))
	add("status, patch with the dynamic client", waits, onDeployments(func(ctx context.Context, w *ownWrites, _ *appsv1.Deployment) error {
		return ignore(w.dyn.Resource(deployments).Namespace(w.namespace).Patch(ctx, "d", types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`), metav1.PatchOptions{}, "status"))
	}))
	add("status, nothing changed", atOnce, onDeployments(func(ctx context.Context, w *ownWrites, d *appsv1.Deployment) error {
		return ignore(client.For[*appsv1.Deployment](w.client).UpdateStatus(ctx, d))
	}))
	scale := func(ctx context.Context, w *ownWrites, _ *appsv1.Deployment) error {
		s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: w.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
		return ignore(w.clientset.AppsV1().Deployments(w.namespace).UpdateScale(ctx, "d", s, metav1.UpdateOptions{}))
	}
	add("scale", waits, onDeployments(scale))
	add("a selector, scale of what it excludes", atOnce, onSelected(labels.SelectorFromSet(labels.Set{"in": "yes"}), metav1.ListOptions{LabelSelector: "in=yes"}, scale))
	onPods := func(node string, write func(ctx context.Context, w *ownWrites, p *corev1.Pod) error) prepare {
		return func(w *ownWrites) plan {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: w.namespace}, Spec: podSpec()}
			p.Spec.NodeName = node
			p, err := w.direct.CoreV1().Pods(w.namespace).Create(w.ctx, p, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			w.marking = true // which of both is for the API server to decide, in two steps
			v := viewOf(w, cache.For[*corev1.Pod](w.cache), pods, metav1.ListOptions{})
			return plan{views: []view{v}, write: func(ctx context.Context) error { return write(ctx, w, p.DeepCopy()) }}
		}
	}
	evict := func(ctx context.Context, w *ownWrites, _ *corev1.Pod) error {
		return w.clientset.CoreV1().Pods(w.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: w.namespace}})
	}
	add("eviction that deletes", waits, onPods("", evict))
	add("eviction that marks", waits, onPods("nowhere", evict))
	add("delete with a grace period", waits, onPods("nowhere", func(ctx context.Context, w *ownWrites, _ *corev1.Pod) error {
		return w.clientset.CoreV1().Pods(w.namespace).Delete(ctx, "p", metav1.DeleteOptions{})
	}))
	add("binding, whose answer does not tell the version", waits, onPods("", func(ctx context.Context, w *ownWrites, _ *corev1.Pod) error {
		return w.clientset.CoreV1().Pods(w.namespace).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "nowhere"}}, metav1.CreateOptions{})
	}))
}
