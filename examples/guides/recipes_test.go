// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/manager"
)

// seen records the keys that are reconciled, and when.
type seen struct {
	mu   sync.Mutex
	keys []string
	at   []time.Time
}

func (s *seen) Reconcile(_ context.Context, key types.NamespacedName) (controller.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.at = append(s.keys, key.String()), append(s.at, time.Now())
	return controller.Result{}, nil
}

// take returns the keys since the last take, in order of their names.
func (s *seen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Sorted(slices.Values(s.keys))
	s.keys = nil
	return strings.Join(keys, " ")
}

// simulated runs test with an API server in memory and a client of a user, in virtual time.
func simulated(t *testing.T, test func(t *testing.T, cfg *rest.Config, user *client.Client), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := sim.New(t, scheme.Scheme, objects...).Config()
		user, err := client.New(cfg, client.Options{FieldOwner: "user"})
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		test(t, cfg, user)
	})
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func idle(t *testing.T, managers ...*manager.Manager) {
	t.Helper()
	for _, mgr := range managers {
		if err := mgr.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecipes_TwoKinds(t *testing.T) {
	simulated(t, func(t *testing.T, cfg *rest.Config, _ *client.Client) {
		mgr, first, second := manager.New(cfg, manager.Options{Name: "two"}), &seen{}, &seen{}
		twoKinds(mgr, first, second)
		defer run(t, mgr)()
		idle(t, mgr)
		if d, s := first.take(), second.take(); d != "default/web" || s != "default/front" {
			t.Errorf("the controllers have reconciled %q and %q, want default/web and default/front", d, s)
		}
	}, deployment(), &corev1.Service{ObjectMeta: named("default", "front"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
}

// TestRecipes_TwoVersions moves an object from one version to the other with a label.
func TestRecipes_TwoVersions(t *testing.T) {
	simulated(t, func(t *testing.T, cfg *rest.Config, user *client.Client) {
		old, next := &seen{}, &seen{}
		reconciler := func(s *seen) func(*cache.Handle[*appsv1.Deployment]) reconciles {
			return func(*cache.Handle[*appsv1.Deployment]) reconciles { return s }
		}
		selector := func(text string) labels.Selector {
			s, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		mgr := version(cfg, "web-operator", selector("example.com/track!=next"), reconciler(old))
		other := version(cfg, "web-operator-next", selector("example.com/track=next"), reconciler(next))
		defer run(t, mgr)()
		defer run(t, other)()
		idle(t, mgr, other)
		if a, b := old.take(), next.take(); a != "default/web" || b != "" {
			t.Errorf("before the label, the versions reconcile %q and %q, want the old one alone", a, b)
		}
		if _, err := client.For[*appsv1.Deployment](user).Patch(t.Context(), types.NamespacedName{Namespace: "default", Name: "web"},
			types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/track":"next"}}}`)); err != nil {
			t.Fatal(err)
		}
		idle(t, mgr, other)
		if a, b := old.take(), next.take(); a != "default/web" || b != "default/web" {
			t.Errorf("after the label, the versions reconcile %q and %q, want the object in both: gone in one, new in the other", a, b)
		}
	}, deployment())
}

// TestRecipes_QPS sends 150 requests: 100 at once, and 50 more in a second.
func TestRecipes_QPS(t *testing.T) {
	simulated(t, func(t *testing.T, cfg *rest.Config, _ *client.Client) {
		for want, mgr := range map[time.Duration]*manager.Manager{
			0: manager.New(rest.CopyConfig(cfg), manager.Options{Name: "unlimited"}), time.Second: limited(rest.CopyConfig(cfg)),
		} {
			c := mgr.Client()
			began := time.Now()
			for i := range 150 {
				var err error
				if key := (types.NamespacedName{Namespace: "default", Name: "web"}); i%2 == 0 {
					_, err = client.For[*corev1.ConfigMap](c).GetLive(t.Context(), key)
				} else {
					_, err = client.For[*corev1.Secret](c).GetLive(t.Context(), key)
				}
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began).Round(100 * time.Millisecond); took != want {
				t.Errorf("150 requests took %s, want %s", took, want)
			}
			c.Close()
		}
	})
}

func TestRecipes_Metric(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: named("default", "web"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "example.com/web:1"}}}}
	simulated(t, func(t *testing.T, cfg *rest.Config, _ *client.Client) {
		mgr, r, err := newCounted(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer run(t, mgr)()
		idle(t, mgr)
		if n := testutil.ToFloat64(r.images.WithLabelValues("example.com")); n != 1 {
			t.Errorf("the metric is %v, want 1", n)
		}
	}, pod)
}

// TestRecipes_ANoisyObject changes two objects each second. The noisy one is reconciled once a
// minute, the other one each time.
func TestRecipes_ANoisyObject(t *testing.T) {
	simulated(t, func(t *testing.T, cfg *rest.Config, user *client.Client) {
		mgr, r := manager.New(cfg, manager.Options{Name: "noisy"}), &seen{}
		mgr.Add(noisy(cache.For[*corev1.ConfigMap](mgr.Cache()), r))
		defer run(t, mgr)()
		idle(t, mgr)
		r.take()
		configMaps := client.For[*corev1.ConfigMap](user)
		for i := range 90 {
			for _, name := range []string{"heartbeat", "settings"} {
				m := &corev1.ConfigMap{ObjectMeta: named("default", name), Data: map[string]string{"beat": time.Duration(i).String()}}
				if _, err := configMaps.Update(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		times := strings.Fields(r.take())
		beats := len(times) - slices.Index(times, "default/settings")
		if i := slices.Index(times, "default/settings"); i != 1 || beats != 90 {
			t.Errorf("in 90 seconds, the noisy object was reconciled %d times and the other one %d times, want 1 and 90", i, beats)
		}
	}, &corev1.ConfigMap{ObjectMeta: named("default", "heartbeat")}, &corev1.ConfigMap{ObjectMeta: named("default", "settings")})
}

// TestRecipes_AnOwnerElsewhere moves a Secret to another owner, by its annotation.
func TestRecipes_AnOwnerElsewhere(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: named("vault", "web"), Data: map[string][]byte{"a": nil}}
	secret.Annotations = map[string]string{ownerAnnotation: "default/web"}
	simulated(t, func(t *testing.T, cfg *rest.Config, user *client.Client) {
		mgr, r := manager.New(cfg, manager.Options{Name: "elsewhere"}), &seen{}
		elsewhere(mgr, r)
		defer run(t, mgr)()
		idle(t, mgr)
		r.take()
		key := types.NamespacedName{Namespace: "vault", Name: "web"}
		for patch, want := range map[string]string{
			`{"data":{"a":"Yg=="}}`: "",
			`{"metadata":{"annotations":{"example.com/owner":"other/api"}}}`: "default/web other/api",
		} {
			if _, err := client.For[*corev1.Secret](user).Patch(t.Context(), key, types.MergePatchType, []byte(patch)); err != nil {
				t.Fatal(err)
			}
			idle(t, mgr)
			if got := r.take(); got != want {
				t.Errorf("after %s, %q was reconciled, want %q", patch, got, want)
			}
		}
	}, deployment(), secret)
}

// TestRecipes_ApplyATypedObject: a field that the object leaves out belongs to others.
func TestRecipes_ApplyATypedObject(t *testing.T) {
	simulated(t, func(t *testing.T, _ *rest.Config, user *client.Client) {
		services, key := client.For[*corev1.Service](user), types.NamespacedName{Namespace: "default", Name: "web"}
		for _, affinity := range []corev1.ServiceAffinity{"None", "ClientIP"} {
			s, err := applied(t.Context(), user, key.Namespace)
			if err != nil {
				t.Fatal(err)
			}
			if s.Spec.Ports[0].Port != 80 || s.Spec.SessionAffinity != affinity {
				t.Errorf("the Service is %v, want port 80 and affinity %s", s.Spec, affinity)
			}
			if _, err := services.Patch(t.Context(), key, types.MergePatchType, []byte(`{"spec":{"sessionAffinity":"ClientIP"}}`), client.FieldOwner("other")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRecipes_AnyKind labels objects of kinds that the code does not know.
func TestRecipes_AnyKind(t *testing.T) {
	simulated(t, func(t *testing.T, cfg *rest.Config, user *client.Client) {
		mgr := manager.New(cfg, manager.Options{Name: "labels"})
		labelKinds(mgr, corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("Deployment"))
		defer run(t, mgr)()
		idle(t, mgr)
		m, err := client.For[*corev1.ConfigMap](user).GetLive(t.Context(), types.NamespacedName{Namespace: "default", Name: "m"})
		if err != nil || m.Labels["example.com/seen"] != "true" || m.Data["a"] != "b" {
			t.Errorf("the ConfigMap is %v, error: %v; want the label, and the data as before", m, err)
		}
		d, err := client.For[*appsv1.Deployment](user).GetLive(t.Context(), types.NamespacedName{Namespace: "default", Name: "web"})
		if err != nil || d.Labels["example.com/seen"] != "true" || d.Spec.Template.Spec.Containers[0].Image != "web:1" {
			t.Errorf("the Deployment is %v, error: %v; want the label, and the template as before", d, err)
		}
	}, deployment(), &corev1.ConfigMap{ObjectMeta: named("default", "m"), Data: map[string]string{"a": "b"}})
}
