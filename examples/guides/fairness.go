// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// byNamespace makes a controller that treats each namespace as a tenant, with weights.
func byNamespace(r controller.Reconciler[types.NamespacedName]) *controller.Controller[types.NamespacedName] {
	return controller.NewWithQueue("tenants", r, controller.Options{NamespaceTenants: true}, workqueue.Options[types.NamespacedName]{
		TenantWeight: func(tenant string) float64 {
			if tenant == "production" {
				return 4 // four times as often as another namespace
			}
			return 1
		},
	})
}

// withDefaults makes a manager with defaults for all its controllers.
func withDefaults(cfg *rest.Config) *manager.Manager {
	return manager.New(cfg, manager.Options{
		Name:               "website",
		ControllerDefaults: controller.Options{NamespaceTenants: true, Workers: 4},
	})
}

// choosing makes a controller whose predicates and results choose class and delay.
func choosing(configMaps *cache.Handle[*corev1.ConfigMap], secrets *cache.Handle[*corev1.Secret]) *controller.Controller[types.NamespacedName] {
	c := controller.New("choosing", controller.Func[types.NamespacedName](hourly), controller.Options{})
	c.Watch(source.Kind(configMaps, handler.Self(), handler.InClass(workqueue.Interactive, handler.LabelsChanged)))
	c.Watch(source.Kind(secrets, handler.Self(), handler.After(10*time.Second)))
	return c
}

func hourly(context.Context, types.NamespacedName) (controller.Result, error) {
	return controller.Result{RequeueAfter: time.Hour, Class: new(workqueue.Background)}, nil
}
