// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/rbac"
)

func TestRBAC_MergesTheReplicas(t *testing.T) {
	lists := rbac.Rule{Resource: "configmaps", Verbs: []string{"list", "watch"}, Why: "the informer of ConfigMap.v1"}
	renews := rbac.Rule{Namespace: "operators", Group: "coordination.k8s.io", Resource: "leases", Names: []string{"website-operator"}, Verbs: []string{"update"}}
	writes := rbac.Rule{Namespace: "shop", Resource: "configmaps", Names: []string{"a"}, Verbs: []string{"patch"}}
	leader := serve(t, pages{"/debug/rbac": rbac.Report{Name: "website-operator", Needed: []rbac.Rule{lists}, Used: []rbac.Rule{lists, renews, writes}}})
	standby := serve(t, pages{"/debug/rbac": rbac.Report{Name: "website-operator", Needed: []rbac.Rule{lists}, Used: []rbac.Rule{lists}}})
	o := plug(t, "rbac", leader, standby)
	o.check(t, 0, "", "")
	if want := `# website-operator: rights that it needs, and has used (replicas asked: 2)
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: website-operator
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [list, patch, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: website-operator
  namespace: operators
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [website-operator], verbs: [update]}
`; o.out != want {
		t.Errorf("got\n%s\nwant\n%s", o.out, want)
	}
}

func TestRBAC_NamesWhatIsMissing(t *testing.T) {
	lists := rbac.Rule{Resource: "configmaps", Verbs: []string{"list", "watch"}, Why: "the informer of\x1b ConfigMap.v1"}
	url := serve(t, pages{"/debug/rbac": rbac.Report{Name: "x", Needed: []rbac.Rule{lists}, Missing: []rbac.Rule{lists}, Error: "no\nanswer"}})
	o := plug(t, "rbac", url)
	o.check(t, 2, "\n# missing: list, watch configmaps (the informer of  ConfigMap.v1)\n- {apiGroups: ['']", name(url)+": not all rights could be reviewed: no answer\n")
	o = plug(t, "rbac", "-o", "json", url)
	o.check(t, 2, `"missing": [`, "no answer")
	testkit.NotContains(t, o.out, "apiVersion", "the JSON is mixed with YAML")
}
