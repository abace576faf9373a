// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
	"github.com/setpoint-dev/setpoint/webhook"
)

func validateNew(ctx context.Context, site *v1.Website) error {
	return validateChange(ctx, &v1.Website{}, site)
}

// validateChange validates only the fields that change. So a Website from before a rule can still
// be changed otherwise, and its finalizer can be removed.
func validateChange(ctx context.Context, old, site *v1.Website) error {
	var wrong field.ErrorList
	if host := site.Spec.Host; host != old.Spec.Host {
		for _, problem := range validation.IsDNS1123Subdomain(host) {
			wrong = append(wrong, field.Invalid(field.NewPath("spec", "host"), host, problem))
		}
	}
	if page := site.Spec.Page; page != old.Spec.Page && strings.Contains(strings.ToLower(page.Content), "<script") {
		wrong = append(wrong, field.Forbidden(field.NewPath("spec", "page", "content"), "a page must not have scripts"))
	}
	if replicas(site) == 0 && replicas(old) != 0 {
		webhook.Warnf(ctx, "the site is down until spec.replicas is at least 1")
	}
	return wrong.ToAggregate()
}
