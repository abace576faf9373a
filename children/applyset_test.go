// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

const (
	partOf = "applyset.kubernetes.io/part-of"
	setID  = "applyset.kubernetes.io/id"
	// applyset-BASE64URL(SHA256("a.default.ServiceAccount."))-v1
	idOfA = "applyset-ygxf9HQb_fNnEXfkcypUicl8AhiOT7xxrfcs0sM-Lx8-v1"
	// applyset-BASE64URL(SHA256("owner..ClusterRole.rbac.authorization.k8s.io"))-v1
	idOfOwner = "applyset-wEyK4y9TQTp_EViwmj0pJK0LI_CnbuCYNbihUq4GEw8-v1"
)

// tooled restarts the operator with another tooling.
func (w *world) tooled(tooling string) {
	w.stop()
	w.tooling = tooling
	w.start()
}

// TestApplySet_LabelsOwnerAndChildren: the owner and its children get the labels, and the owner the
// annotations, once each, also if the children exist already. Without ApplySet, the label of the
// children goes.
func TestApplySet_LabelsOwnerAndChildren(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		own := map[string]string{"own": "label"}
		w.want("a", configMap("one", "1").WithLabels(own), children.With(configMap("two", "1"), children.KeepDrift()))
		w.edit(owners, "a", func(u *unstructured.Unstructured) { u.SetLabels(own) })
		w.tooled("test/v1")
		n := w.writes()
		w.idle("a")
		testkit.Equal(t, w.writes()-n, 3, w.states("a"))
		owner := w.object(owners, "a")
		if got := owner.GetLabels(); got[setID] != idOfA || got["own"] != "label" {
			t.Errorf("the owner has the labels %v", got)
		}
		notes := owner.GetAnnotations()
		if notes["applyset.kubernetes.io/tooling"] != "test/v1" || notes["applyset.kubernetes.io/additional-namespaces"] != "" ||
			notes["applyset.kubernetes.io/contains-group-kinds"] != "ClusterRole.rbac.authorization.k8s.io,ConfigMap,Deployment.apps,Service" {
			t.Errorf("the owner has the annotations %v", notes)
		}
		for _, name := range []string{"one", "two"} {
			testkit.Equal(t, w.object(sim.ConfigMaps, name).GetLabels()[partOf], idOfA, fmt.Sprintf("%s has the label", name))
		}
		testkit.Equal(t, w.object(sim.ConfigMaps, "one").GetLabels()["own"], "label", "the label of the child")
		w.restart()
		n = w.writes()
		w.idle("a")
		testkit.Equal(t, w.writes()-n, 0, w.states("a"))
		w.tooled("")
		w.idle("a")
		if got := w.object(sim.ConfigMaps, "one").GetLabels(); got[partOf] != "" || got["own"] != "label" {
			t.Errorf("without ApplySet, the labels are %v", got)
		}
	})
}

// TestApplySet_RefusesAnotherTools: an owner that is the parent of another tool's ApplySet is left
// alone, and nothing is applied. A newer version of the same tool takes over.
func TestApplySet_RefusesAnotherTools(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.tooled("test/v1")
		w.want("a", configMap("one", "1"))
		w.stop()
		u := w.object(owners, "a")
		u.SetAnnotations(map[string]string{"applyset.kubernetes.io/tooling": "kubectl/v1.27"})
		w.api.Put(owners, u)
		w.desired["a"] = []client.ApplyConfiguration{configMap("one", "2")}
		w.tooling = "kube/v1"
		w.start()
		w.idle("a")
		testkit.ErrorContains(t, w.err("a"), "the owner is an ApplySet of kubectl/v1.27; leave out Set.ApplySet, or remove the annotation")
		testkit.Equal(t, w.value("one"), "1", "the value although the set is another tool's")
		w.tooled("kubectl/v1.28")
		w.idle("a")
		testkit.Equal(t, w.object(owners, "a").GetAnnotations()["applyset.kubernetes.io/tooling"], "kubectl/v1.28")
		testkit.Equal(t, w.value("one"), "2")
	})
}

// TestApplySet_NamesNamespaces: a cluster-scoped owner names the namespaces of its children, until
// they are gone.
func TestApplySet_NamesNamespaces(t *testing.T) {
	inWideBubble(t, func(t *testing.T, w *wide) {
		w.set.ApplySet("test/v1")
		reconcile := func(want string, names ...string) {
			t.Helper()
			var desired []client.ApplyConfiguration
			for _, name := range names {
				desired = append(desired, coreac.ConfigMap("one", name))
			}
			owned, err := w.all.Get(t.Context(), types.NamespacedName{Name: "owner"})
			if err == nil {
				_, err = w.set.Reconcile(t.Context(), owned, desired...)
			}
			testkit.Equal(t, err, nil)
			w.settle()
			owner := w.api.Object(clusterRoles, "", "owner")
			testkit.Equal(t, owner.GetAnnotations()["applyset.kubernetes.io/additional-namespaces"], want)
			testkit.Equal(t, owner.GetLabels()[setID], idOfOwner)
		}
		reconcile("default,kube-public", "kube-public", "default")
		reconcile("default,kube-public", "default")
		reconcile("default", "default")
	})
}
