// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/examples/unittest"
)

// This file has the tests of examples/unittest for a reconciler of controller-runtime and its fake
// client. docs/controller-runtime.md compares them.

type previewer struct {
	crclient.Client
	now func() time.Time
}

func (r *previewer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &unittest.Preview{}
	if err := r.Get(ctx, req.NamespacedName, p); err != nil || p.DeletionTimestamp != nil {
		return reconcile.Result{}, crclient.IgnoreNotFound(err)
	}
	var left time.Duration
	if lifetime := p.Spec.Lifetime.Duration; lifetime > 0 {
		if left = p.CreationTimestamp.Add(lifetime).Sub(r.now()); left <= 0 {
			return reconcile.Result{}, r.Delete(ctx, p)
		}
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r, d, func() error {
		labels := map[string]string{"example.com/preview": p.Name}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "preview", Image: p.Spec.Image}}
		return controllerutil.SetControllerReference(p, d, r.Scheme())
	})
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Starting"}
	switch {
	case err != nil:
		ready.Reason, ready.Message = "ApplyFailed", err.Error()
	case d.Status.ReadyReplicas > 0:
		ready.Status, ready.Reason = metav1.ConditionTrue, "Running"
	}
	meta.SetStatusCondition(&p.Status.Conditions, ready)
	if failed := r.Status().Update(ctx, p); failed != nil {
		return reconcile.Result{}, failed
	}
	return reconcile.Result{RequeueAfter: left}, err
}

var (
	shop  = types.NamespacedName{Namespace: "default", Name: "shop"}
	quota = apierrors.NewForbidden(appsv1.Resource("deployments"), "shop", errors.New("over quota"))
)

func preview(lifetime time.Duration) *unittest.Preview {
	return &unittest.Preview{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name, CreationTimestamp: metav1.Now()},
		Spec:       unittest.PreviewSpec{Image: "shop:v2", Lifetime: metav1.Duration{Duration: lifetime}},
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

func expired() *unittest.Preview {
	p := preview(time.Hour)
	p.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
	return p
}

func TestReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		objects []crclient.Object
		funcs   interceptor.Funcs
		want    string // the reason of Ready, or "gone"
		fails   bool
	}{
		"new":          {objects: []crclient.Object{preview(0)}, want: "Starting"},
		"ready":        {objects: []crclient.Object{preview(0), deployment("shop:v2", 1)}, want: "Running"},
		"another name": {objects: nil, want: "gone"},
		"expired":      {objects: []crclient.Object{expired()}, want: "gone"},
		"over quota":   {objects: []crclient.Object{preview(0)}, funcs: refuse(1), want: "ApplyFailed", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPreviewer(c.funcs, c.objects...)
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: shop}); (err != nil) != c.fails {
				t.Errorf("Reconcile returned %v", err)
			}
			if got := reason(t, r); got != c.want {
				t.Errorf("Ready has the reason %q, want %q", got, c.want)
			}
		})
	}
}

func newPreviewer(funcs interceptor.Funcs, objects ...crclient.Object) *previewer {
	c := fake.NewClientBuilder().WithScheme(unittest.NewScheme()).WithObjects(objects...).
		WithStatusSubresource(&unittest.Preview{}).WithInterceptorFuncs(funcs).Build()
	return &previewer{Client: c, now: time.Now}
}

// refuse refuses the next creates of Deployments.
func refuse(times int) interceptor.Funcs {
	return interceptor.Funcs{Create: func(ctx context.Context, c crclient.WithWatch, obj crclient.Object, opts ...crclient.CreateOption) error {
		if _, ok := obj.(*appsv1.Deployment); ok && times > 0 {
			times--
			return quota
		}
		return c.Create(ctx, obj, opts...)
	}}
}

// reason returns the reason of the Preview's condition Ready, or "gone".
func reason(t *testing.T, c crclient.Client) string {
	p := &unittest.Preview{}
	err := c.Get(t.Context(), shop, p)
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

// The fake client drives no manager: each test calls Reconcile as often as the queue would.
func TestFollowsTheImage(t *testing.T) {
	r := newPreviewer(interceptor.Funcs{}, preview(0), deployment("shop:v1", 1))
	once(t, r)
	d := &appsv1.Deployment{}
	if err := r.Get(t.Context(), shop, d); err != nil || d.Spec.Template.Spec.Containers[0].Image != "shop:v2" {
		t.Errorf("the Deployment is %v, error %v", d, err)
	}
	if got := reason(t, r); got != "Running" {
		t.Errorf("Ready has the reason %q", got)
	}
}

// Its clock is a field of the reconciler. The Deployment stays: there is no garbage collector.
func TestDeletesAfterTheLifetime(t *testing.T) {
	r := newPreviewer(interceptor.Funcs{}, preview(time.Hour))
	result := once(t, r)
	if result.RequeueAfter < 59*time.Minute || reason(t, r) != "Starting" {
		t.Errorf("the next Reconcile is in %v, and Ready has the reason %q", result.RequeueAfter, reason(t, r))
	}
	r.now = func() time.Time { return time.Now().Add(result.RequeueAfter) }
	once(t, r)
	if got := reason(t, r); got != "gone" {
		t.Errorf("after an hour, Ready has the reason %q", got)
	}
	if err := r.Get(t.Context(), shop, &appsv1.Deployment{}); err != nil {
		t.Errorf("the fake client collected the Deployment: %v; docs/controller-runtime.md denies that", err)
	}
}

func TestRetriesAfterAFailedWrite(t *testing.T) {
	r := newPreviewer(refuse(2), preview(0))
	for range 2 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: shop}); err == nil {
			t.Error("Reconcile returned no error, so it would not be retried")
		}
	}
	once(t, r)
	if got := reason(t, r); got != "Starting" {
		t.Errorf("Ready has the reason %q", got)
	}
}

// once is a Reconcile that succeeds.
func once(t *testing.T, r *previewer) reconcile.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: shop})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
