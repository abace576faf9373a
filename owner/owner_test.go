// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/owner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func configMap(namespace, name, uid string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
}

// handle returns a handle of a cache that does not run.
func handle[T cache.Object](t *testing.T) *cache.Handle[T] {
	t.Helper()
	c, err := client.New(sim.NewServer().Config(), client.Options{})
	testkit.NoError(t, err)
	return cache.For[T](cache.New(c, cache.Options{}))
}

func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	testkit.NotEqual(t, err, nil)
	for _, w := range words {
		testkit.ErrorContains(t, err, w)
	}
}

// refs has one word for each reference: the UID, with ! if it controls and + if it blocks.
func refs(obj metav1.Object) string {
	var all []string
	for _, r := range obj.GetOwnerReferences() {
		s := r.APIVersion + ":" + r.Kind + ":" + r.Name + ":" + string(r.UID)
		if r.Controller != nil && *r.Controller {
			s += "!"
		}
		if r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion {
			s += "+"
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

func TestSetController_SetHasRemove(t *testing.T) {
	h := handle[*appsv1.Deployment](t)
	meta := func(name, uid string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
	}
	web, api := owner.Of(h, meta("web", "1")), owner.InScheme(scheme.Scheme, meta("api", "2"))
	obj := configMap("default", "page", "9")
	ok := func(err error) {
		t.Helper()
		testkit.Equal(t, err, nil)
	}
	is := func(want string) {
		t.Helper()
		testkit.Equal(t, refs(obj), want)
	}
	ok(api.Set(obj))
	is("apps/v1:Deployment:api:2")
	ok(web.SetController(obj))
	ok(web.SetController(obj))
	is("apps/v1:Deployment:api:2 apps/v1:Deployment:web:1!+")
	ok(web.Set(obj)) // still controls it
	is("apps/v1:Deployment:api:2 apps/v1:Deployment:web:1!+")
	testkit.Equal(t, web.Has(obj), true, "Has is wrong")
	testkit.Equal(t, api.Has(obj), true, "Has is wrong")
	err := api.SetController(obj)
	wants(t, err, "default/page is controlled by the Deployment web and cannot be controlled by the Deployment api")
	var taken *owner.AlreadyOwnedError
	if !errors.As(err, &taken) || taken.Controller.UID != "1" || taken.Owner.UID != "2" || taken.Object.Name != "page" {
		t.Errorf("%#v", err)
	}
	is("apps/v1:Deployment:api:2 apps/v1:Deployment:web:1!+")
	// A successor of the same name replaces its predecessor, which it is not.
	successor := owner.Of(h, meta("web", "3"))
	if successor.Has(obj) || successor.Remove(obj) {
		t.Error("the successor owns what its predecessor owned")
	}
	ok(successor.SetController(obj, owner.BlockDeletion(false)))
	is("apps/v1:Deployment:api:2 apps/v1:Deployment:web:3!")
	ok(api.Set(obj, owner.BlockDeletion(true)))
	is("apps/v1:Deployment:api:2+ apps/v1:Deployment:web:3!")
	if !successor.Remove(obj) || successor.Remove(obj) || successor.Has(obj) {
		t.Error("Remove is wrong")
	}
	ok(api.SetController(obj))
	is("apps/v1:Deployment:api:2!+")
	// Duplicates, as other programs make them, become one.
	obj.OwnerReferences = append(obj.OwnerReferences, obj.OwnerReferences[0], metav1.OwnerReference{UID: "7"}, obj.OwnerReferences[0])
	ok(api.SetController(obj))
	is("apps/v1:Deployment:api:2!+ :::7")
}

func TestSet_DoesNotChangeSharedReferences(t *testing.T) {
	obj := configMap("default", "page", "9")
	web := owner.InScheme(scheme.Scheme, configMap("default", "web", "1"))
	testkit.NoError(t, web.Set(obj))
	shared := obj.OwnerReferences
	if err := web.SetController(obj); err != nil || shared[0].Controller != nil {
		t.Errorf("%v, %+v", err, shared)
	}
	shared = obj.OwnerReferences
	if web.Remove(obj); len(obj.OwnerReferences) != 0 || shared[0].UID != "1" {
		t.Errorf("%+v", shared)
	}
}

func TestInScheme_OfUnstructured(t *testing.T) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	u.SetName("web")
	u.SetNamespace("default")
	u.SetUID("1")
	obj := configMap("default", "page", "9")
	testkit.Equal(t, owner.InScheme(runtime.NewScheme(), u).Set(obj), nil)
	testkit.Equal(t, refs(obj), "apps/v1:Deployment:web:1")
}

func TestSet_Mistakes(t *testing.T) {
	h := handle[*corev1.ConfigMap](t)
	node := owner.InScheme(scheme.Scheme, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "5"}})
	for _, obj := range []metav1.Object{configMap("default", "a", "9"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}}} {
		testkit.Equal(t, node.SetController(obj), nil, "a cluster-scoped owner owns everything:")
	}
	web := owner.Of(h, configMap("default", "web", "1"))
	for name, c := range map[string]struct {
		owner owner.Owner
		obj   metav1.Object
		words []string
	}{
		"another namespace": {web, configMap("other", "page", "9"), []string{"the ConfigMap default/web cannot own other/page in another namespace", "finalizer"}},
		"cluster-scoped":    {web, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, []string{"the ConfigMap default/web cannot own n, which has no namespace"}},
		"itself":            {web, configMap("default", "web", "1"), []string{"the ConfigMap default/web cannot own itself"}},
		"nil":               {web, (*corev1.ConfigMap)(nil), []string{"the object for the owner ConfigMap default/web is nil"}},
		"not read":          {owner.Of(h, configMap("default", "web", "")), configMap("default", "a", "9"), []string{"the ConfigMap default/web has no UID", "an object that was read"}},
		"nil owner":         {owner.Of(h, nil), configMap("default", "a", "9"), []string{"the ConfigMap is nil"}},
		"no kind":           {owner.Of[*corev1.ConfigMap](nil, configMap("default", "web", "1")), configMap("default", "a", "9"), []string{"the kind is nil"}},
		"no scheme":         {owner.InScheme(nil, configMap("default", "web", "1")), configMap("default", "a", "9"), []string{"the scheme or the object is nil"}},
		"unknown":           {owner.InScheme(runtime.NewScheme(), configMap("default", "web", "1")), configMap("default", "a", "9"), []string{"does not know the type; add its package", "AddToScheme"}},
		"zero":              {owner.Owner{}, configMap("default", "a", "9"), []string{"owner.Of makes one"}},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, c.owner.Set(c.obj), c.words...)
			wants(t, c.owner.SetController(c.obj), c.words...)
			if cm, ok := c.obj.(*corev1.ConfigMap); ok && cm != nil && refs(cm) != "" {
				t.Errorf("the object was changed: %s", refs(cm))
			}
			testkit.Equal(t, c.owner.Has(c.obj), false, "it owns the object")
			testkit.Equal(t, c.owner.Remove(c.obj), false, "it owns the object")
		})
	}
}

// TestGarbageCollection: Kubernetes deletes the object with its last owner.
func TestGarbageCollection(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{Controllers: true})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	c, err := client.New(cluster.Config(), client.Options{})
	testkit.NoError(t, err)
	defer c.Close()
	all := cache.New(c, cache.Options{})
	h, direct := cache.For[*corev1.ConfigMap](all), client.For[*corev1.ConfigMap](c)
	deleted := make(chan string, 10)
	if _, err := h.Subscribe(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		deleted <- obj.(metav1.Object).GetName()
	}}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = all.Run(ctx) })
	defer running.Wait()
	defer stop()
	create := func(m *corev1.ConfigMap) *corev1.ConfigMap {
		t.Helper()
		m, err := direct.Create(ctx, m)
		testkit.NoError(t, err)
		return m
	}
	first, second := create(configMap("default", "first", "")), create(configMap("default", "second", ""))
	page := configMap("default", "page", "")
	testkit.NoError(t, errors.Join(owner.Of(h, first).SetController(page), owner.Of(h, second).Set(page)))
	create(page)
	for _, m := range []*corev1.ConfigMap{first, second} {
		testkit.NoError(t, direct.Delete(ctx, types.NamespacedName{Namespace: "default", Name: m.Name}))
	}
	for _, want := range []string{"first", "second", "page"} {
		select {
		case got := <-deleted:
			testkit.Equal(t, got, want, "is gone")
		case <-ctx.Done():
			t.Fatalf("%s is still there", want)
		}
	}
}
