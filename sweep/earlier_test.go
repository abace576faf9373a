// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sweep_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/sweep"
)

// worker does what a ConfigMap asks for, by calls that had defects in earlier versions of this
// module. See designs/0026 for the commits.
type worker struct {
	maps    *cache.Handle[*unstructured.Unstructured]
	secrets *cache.Handle[*corev1.Secret]
	client  *client.Client
}

const on = "example.com/on"

func (w *worker) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	obj, err := w.maps.Get(ctx, key)
	if err != nil {
		return controller.Result{}, client.IgnoreNotFound(err)
	}
	switch a := obj.GetAnnotations(); {
	case a[on] == "yes" && !hasFinalizer(obj):
		_, err := w.patch(ctx, obj, func(o *unstructured.Unstructured) { o.SetFinalizers(append(o.GetFinalizers(), finalizer)) })
		return controller.Result{}, err
	case a[done] != a[want]:
		if _, err := w.patch(ctx, obj, func(o *unstructured.Unstructured) { annotate(o, done, a[want]) }); err != nil {
			return controller.Result{}, err
		}
	}
	return controller.Result{}, w.label(ctx, key, obj.GetAnnotations()[want])
}

// label labels a Secret of another owner.
func (w *worker) label(ctx context.Context, key types.NamespacedName, value string) error {
	s, err := w.secrets.Get(ctx, key)
	if apierrors.IsNotFound(err) || err == nil && s.Labels["want"] == value {
		return nil
	}
	if err == nil {
		_, err = client.For[*corev1.Secret](w.client).Apply(ctx, coreac.Secret(key.Name, key.Namespace).WithLabels(map[string]string{"want": value}), client.UnlessAlready(s))
	}
	return client.IgnoreNotFound(err)
}

func (w *worker) patch(ctx context.Context, before *unstructured.Unstructured, change func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	after := before.DeepCopy()
	change(after)
	return client.PatchFrom(ctx, client.ForKind[*unstructured.Unstructured](w.client, corev1.SchemeGroupVersion.WithKind("ConfigMap")), before, after)
}

func annotate(o *unstructured.Unstructured, name, value string) {
	a := o.GetAnnotations()
	a[name] = value
	o.SetAnnotations(a)
}

func hasFinalizer(o *unstructured.Unstructured) bool {
	for _, f := range o.GetFinalizers() {
		if f == finalizer {
			return true
		}
	}
	return false
}

func works(p sweep.Process) (sweep.Operator, error) {
	mgr := manager.New(p.Config, manager.Options{Name: "worker", Logger: p.Logger})
	w := &worker{
		cache.ForScope[*unstructured.Unstructured](mgr.Cache(), cache.Scope{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}),
		cache.For[*corev1.Secret](mgr.Cache()), mgr.Client(),
	}
	c := controller.New("worker", w, controller.Options{})
	c.Watch(source.Kind(w.maps, handler.Self()))
	c.Watch(source.Kind(w.secrets, handler.Self()))
	mgr.Add(c)
	return mgr, nil
}

// set creates the ConfigMap, or changes its annotations.
func set(name string, annotations map[string]string, then ...func(ctx context.Context, c *client.Client) error) sweep.Step {
	return sweep.Step{Name: name, Do: func(ctx context.Context, c *client.Client) error {
		maps := client.For[*corev1.ConfigMap](c)
		m, err := maps.GetLive(ctx, a)
		switch {
		case apierrors.IsNotFound(err):
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name, Annotations: annotations}})
		case err == nil:
			after := m.DeepCopy()
			for k, v := range annotations {
				metav1.SetMetaDataAnnotation(&after.ObjectMeta, k, v)
			}
			_, err = client.PatchFrom(ctx, maps, m, after)
		}
		for _, f := range then {
			if err == nil {
				<-time.After(time.Second)
				err = f(ctx, c)
			}
		}
		return err
	}}
}

// TestEarlier has a scenario for each defect of an earlier version that a sweep can express.
func TestEarlier(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}, Type: corev1.SecretTypeOpaque}
	for name, steps := range map[string][]sweep.Step{
		"another finalizer": {
			set("create", map[string]string{want: "1"}),
			set("on", map[string]string{on: "yes"}, func(ctx context.Context, c *client.Client) error {
				maps := client.For[*corev1.ConfigMap](c)
				m, err := maps.GetLive(ctx, a)
				if err == nil {
					_, err = maps.EnsureFinalizer(ctx, m, "example.com/other")
				}
				return err
			}),
		},
		"an object that is gone": {
			set("create", map[string]string{want: "1"}),
			set("delete", map[string]string{want: "2"}, func(ctx context.Context, c *client.Client) error {
				return client.For[*corev1.Secret](c).Delete(ctx, a)
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			sweep.Run(t, sweep.Scenario{Scheme: scheme.Scheme, Operator: works, Steps: steps, Objects: []runtime.Object{secret.DeepCopy()}})
		})
	}
}
