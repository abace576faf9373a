// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Command owned keeps many objects for one. A ConfigMap with the label example.com/pool=tokens owns
// as many Secrets as its field "tokens" asks for. The cache finds them by their owner, without a
// walk over all Secrets:
//
//	go run ./examples/owned
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os/signal"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

var pool = labels.Set{"example.com/pool": "tokens"}

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
	mgr := manager.New(cfg, manager.Options{Name: "owned"})
	labelled := cache.Scope{Labels: pool.AsSelector()} // no other Secret is read
	r := &reconciler{
		pools:  cache.ForScope[*corev1.ConfigMap](mgr.Cache(), labelled),
		tokens: cache.ForScope[*corev1.Secret](mgr.Cache(), labelled),
		client: client.For[*corev1.Secret](mgr.Client()),
	}
	c := controller.New("tokens", r, controller.Options{})
	c.Watch(source.Kind(r.pools, handler.Self()))
	c.Watch(source.Kind(r.tokens, handler.Owner(r.pools))) // a Secret makes its owner due
	mgr.Add(c)
	return mgr
}

type reconciler struct {
	pools  *cache.Handle[*corev1.ConfigMap]
	tokens *cache.Handle[*corev1.Secret]
	client *client.Handle[*corev1.Secret]
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	owner, err := r.pools.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil // the garbage collector deletes the Secrets
	}
	if err != nil {
		return controller.Result{}, err
	}
	n, err := strconv.Atoi(owner.Data["tokens"])
	if err != nil {
		return controller.Result{}, controller.Terminal(fmt.Errorf("ConfigMap %s, field tokens: %w", key, err))
	}
	wanted := sets.New[string]()
	for i := range n {
		wanted.Insert(fmt.Sprintf("%s-%d", key.Name, i))
	}
	owned, err := client.Collect(r.tokens.Owned(ctx, owner.UID, cache.ListOptions{}))
	if err != nil {
		return controller.Result{}, err
	}
	_, err = r.client.Prune(ctx, owner, owned, func(s *corev1.Secret) bool { return wanted.Has(s.Name) })
	for _, s := range owned {
		wanted.Delete(s.Name) // it exists
	}
	for _, name := range sets.List(wanted) {
		if err == nil {
			_, err = r.client.Create(ctx, token(owner, name))
		}
	}
	return controller.Result{}, err
}

func token(owner *corev1.ConfigMap, name string) *corev1.Secret {
	s := &corev1.Secret{StringData: map[string]string{"token": rand.Text()}}
	s.Namespace, s.Name, s.Labels = owner.Namespace, name, pool
	s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	return s
}
