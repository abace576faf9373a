// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

const expires = "example.com/expires"

// expiry deletes ConfigMaps at the time in their annotation.
type expiry struct {
	cached *cache.Handle[*corev1.ConfigMap]
	client *client.Handle[*corev1.ConfigMap]
	now    func() time.Time // time.Now, or the clock of a test
}

func (r *expiry) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := r.cached.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	left, ok := remaining(m, r.now())
	if !ok {
		return controller.Result{}, nil
	}
	if left > 0 {
		return controller.Result{RequeueAfter: left}, nil
	}
	return controller.Result{}, r.client.Delete(ctx, key, client.Preconditions(m.UID, m.ResourceVersion))
}

// remaining returns how long the ConfigMap may live, and false if it has no valid annotation.
func remaining(m *corev1.ConfigMap, now time.Time) (time.Duration, bool) {
	at, err := time.Parse(time.RFC3339, m.Annotations[expires])
	return at.Sub(now), err == nil
}

func newExpiry(cfg *rest.Config, now func() time.Time) (*manager.Manager, *controller.Controller[types.NamespacedName]) {
	mgr := manager.New(cfg, manager.Options{Name: "expiry"})
	r := &expiry{cache.For[*corev1.ConfigMap](mgr.Cache()), client.For[*corev1.ConfigMap](mgr.Client()), now}
	c := controller.New("expiry", r, controller.Options{})
	c.Watch(source.Kind(r.cached, handler.Self()))
	mgr.Add(c)
	return mgr, c
}
