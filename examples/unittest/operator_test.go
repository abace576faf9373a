// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package unittest

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/manager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	shop  = types.NamespacedName{Namespace: "default", Name: "shop"}
	quota = apierrors.NewForbidden(appsv1.Resource("deployments"), "shop", errors.New("over quota"))
)

func preview(lifetime time.Duration) *Preview {
	return &Preview{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name},
		Spec:       PreviewSpec{Image: "shop:v2", Lifetime: metav1.Duration{Duration: lifetime}},
	}
}

func deployment(image string, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name}}
	labels := map[string]string{"example.com/preview": shop.Name}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "preview", Image: image}}
	d.Status.ReadyReplicas = ready
	return d
}

func expired() *Preview {
	p := preview(time.Hour)
	p.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
	return p
}

// One Reconcile, without a manager.
func TestReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		objects []runtime.Object
		rules   []fault.Rule
		want    string // the reason of Ready, or "gone"
		fails   bool
	}{
		"new":          {objects: []runtime.Object{preview(0)}, want: "Starting"},
		"ready":        {objects: []runtime.Object{preview(0), deployment("shop:v2", 1)}, want: "Running"},
		"another name": {objects: nil, want: "gone"},
		"expired":      {objects: []runtime.Object{expired()}, want: "gone"},
		"over quota": {
			objects: []runtime.Object{preview(0)},
			rules:   []fault.Rule{{Match: fault.Match{Resources: []string{"deployments"}}, Refuse: quota}},
			want:    "ApplyFailed", fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := sim.New(t, NewScheme(), c.objects...)
			r := start(t, server.Config())
			for _, rule := range c.rules {
				server.Add(rule)
			}
			if _, err := r.Reconcile(t.Context(), shop); (err != nil) != c.fails {
				t.Errorf("Reconcile returned %v", err)
			}
			if got := reason(t, r.client); got != c.want {
				t.Errorf("Ready has the reason %q, want %q", got, c.want)
			}
		})
	}
}

// start returns a reconciler whose cache runs until the test ends.
func start(t *testing.T, cfg *rest.Config) *reconciler {
	c, err := client.New(cfg, client.Options{Scheme: NewScheme(), FieldOwner: "preview"})
	if err != nil {
		t.Fatal(err)
	}
	view := cache.New(c, cache.Options{})
	r := newReconciler(view, c)
	running(t, func() error { return view.Run(t.Context()) })
	return r
}

// running runs f beside the test, and waits for its end when t.Context has ended.
func running(t *testing.T, f func() error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(wg.Wait)
}

// reason returns the reason of the Preview's condition Ready, or "gone".
func reason(t *testing.T, c *client.Client) string {
	p, err := client.For[*Preview](c).GetLive(t.Context(), shop)
	if apierrors.IsNotFound(err) {
		return "gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	if ready := meta.FindStatusCondition(p.Status.Conditions, "Ready"); ready != nil {
		return ready.Reason
	}
	return ""
}

// A manager, in real time. Idle returns when it has nothing left to do.
func TestOperator_FollowsTheImage(t *testing.T) {
	mgr := operate(t, sim.New(t, NewScheme(), preview(0), deployment("shop:v1", 1)).Config())
	d, err := client.For[*appsv1.Deployment](mgr.Client()).GetLive(t.Context(), shop)
	if err != nil || d.Spec.Template.Spec.Containers[0].Image != "shop:v2" {
		t.Errorf("the Deployment is %v, error %v", d, err)
	}
	if got := reason(t, mgr.Client()); got != "Running" {
		t.Errorf("Ready has the reason %q", got)
	}
}

// In virtual time, an hour passes at once.
func TestOperator_DeletesAfterTheLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := operate(t, sim.New(t, NewScheme(), preview(time.Hour)).Config())
		time.Sleep(59 * time.Minute)
		if got := reason(t, mgr.Client()); got != "Starting" {
			t.Errorf("after 59 minutes, Ready has the reason %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := reason(t, mgr.Client()); got != "gone" {
			t.Errorf("after an hour, Ready has the reason %q", got)
		}
		_, err := client.For[*appsv1.Deployment](mgr.Client()).GetLive(t.Context(), shop)
		if !apierrors.IsNotFound(err) {
			t.Errorf("the garbage collector left the Deployment: %v", err)
		}
	})
}

// A rule makes two writes fail. Virtual time skips the backoff of the retries.
func TestOperator_RetriesAfterAFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.New(t, NewScheme(), preview(0))
		refused := server.Add(fault.Rule{
			Match:  fault.Match{Verbs: []string{"patch"}, Resources: []string{"deployments"}},
			Refuse: quota, Times: 2,
		})
		mgr := operate(t, server.Config())
		if got := reason(t, mgr.Client()); got != "Starting" || refused.Hits() != 2 {
			t.Errorf("Ready has the reason %q after %d refused writes", got, refused.Hits())
		}
	})
}

// operate runs the operator until the test ends, and returns when it is idle.
func operate(t *testing.T, cfg *rest.Config) *manager.Manager {
	mgr := operator(cfg)
	running(t, func() error { return mgr.Run(t.Context()) })
	if err := mgr.Idle(t.Context()); err != nil {
		t.Fatal(err)
	}
	return mgr
}
