// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command mapped follows references to another kind. A Deployment with the label
// example.com/restart=wanted gets new Pods when a ConfigMap changes that its containers import with
// envFrom. A handler maps the ConfigMap to the Deployments that refer to it, which an index finds:
//
//	go run ./examples/mapped
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const annotation = "example.com/config-checksum"

var selected = labels.Set{"example.com/restart": "wanted"}

func main() {
	cfg, err := client.LoadConfig("")
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = operator(cfg).Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func operator(cfg *rest.Config) *manager.Manager {
	mgr := manager.New(cfg, manager.Options{Name: "mapped"})
	r := &reconciler{
		deployments: cache.ForScope[*appsv1.Deployment](mgr.Cache(), cache.Scope{Labels: selected.AsSelector()}),
		configs:     cache.For[*corev1.ConfigMap](mgr.Cache()),
		client:      client.For[*appsv1.Deployment](mgr.Client()),
	}
	byConfig := cache.NewIndex(r.deployments, "config", references, "spec")
	c := controller.New("restart", r, controller.Options{})
	c.Watch(source.Kind(r.deployments, handler.Self(), handler.GenerationChanged))
	c.Watch(source.Kind(r.configs, handler.Map(func(ctx context.Context, m *corev1.ConfigMap) (keys []types.NamespacedName, err error) {
		// A Deployment that is not in the index yet becomes due by its own event.
		for d, err := range byConfig.All(ctx, m.Name, cache.ListOptions{Namespace: m.Namespace}) {
			if err != nil {
				return nil, err // the source tries the event again
			}
			keys = append(keys, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
		}
		return keys, nil
	})))
	mgr.Add(c)
	return mgr
}

// references returns the names of the ConfigMaps that the containers of a Deployment import.
func references(d *appsv1.Deployment) (names []string) {
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, from := range container.EnvFrom {
			if from.ConfigMapRef != nil {
				names = append(names, from.ConfigMapRef.Name)
			}
		}
	}
	return names
}

type reconciler struct {
	deployments *cache.Handle[*appsv1.Deployment]
	configs     *cache.Handle[*corev1.ConfigMap]
	client      *client.Handle[*appsv1.Deployment]
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	d, err := r.deployments.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil || len(references(d)) == 0 {
		return controller.Result{}, err
	}
	data := map[string]map[string]string{}
	for _, name := range references(d) {
		m, err := r.configs.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name})
		if err == nil {
			data[name] = m.Data
		} else if !apierrors.IsNotFound(err) {
			return controller.Result{}, err
		}
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", data))) // fmt sorts maps
	if d.Spec.Template.Annotations[annotation] != sum {
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, annotation, sum)
		_, err = r.client.Update(ctx, d)
	}
	return controller.Result{}, err
}
