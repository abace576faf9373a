// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// byNamespace makes a controller that treats each namespace as a tenant.
func byNamespace(r controller.Reconciler[types.NamespacedName]) *controller.Controller[types.NamespacedName] {
	return controller.NewWithQueue("tenants", r, controller.Options{}, workqueue.Options[types.NamespacedName]{
		Tenant: func(key types.NamespacedName) string { return key.Namespace },
		TenantWeight: func(tenant string) float64 {
			if tenant == "production" {
				return 4 // four times as often as another namespace
			}
			return 1
		},
	})
}
