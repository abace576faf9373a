// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/webhook"
)

// Webhooks returns the webhooks for Websites. It sets the scheme. By default, the options have the
// operator's name, and the Service of config/webhook.
func Webhooks(o webhook.Options) (*webhook.Webhooks, error) {
	var err error
	if o.Scheme, err = Scheme(); err != nil {
		return nil, err
	}
	o.Name = cmp.Or(o.Name, Name)
	o.Service = cmp.Or(o.Service, types.NamespacedName{Namespace: "website-system", Name: "website-operator-webhook"})
	hooks := webhook.New(o)
	webhook.AddDefaulter(hooks, setDefaults, webhook.Registration{})
	webhook.AddValidator(hooks, webhook.Validator[*v1.Website]{Create: validateNew, Update: validateChange}, webhook.Registration{})
	webhook.AddConversion(hooks, fromV1alpha1, toV1alpha1)
	return hooks, nil
}
