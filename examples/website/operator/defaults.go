// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"

	v1 "github.com/setpoint-dev/setpoint/examples/website/api/v1"
)

// setDefaults sets what depends on other fields. The CRD has the defaults that are constant.
func setDefaults(_ context.Context, site *v1.Website) error {
	if site.Spec.Host == "" && site.Name != "" { // with generateName, the name may come later
		site.Spec.Host = defaultHost(site)
	}
	return nil
}

// defaultHost is the name of the site's Service in the cluster.
func defaultHost(site *v1.Website) string { return site.Name + "." + site.Namespace + ".svc" }
