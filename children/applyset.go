// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
)

// Labels and annotations of KEP-3659.
const (
	partOf        = "applyset.kubernetes.io/part-of" // on a child: the ID
	setID         = "applyset.kubernetes.io/id"      // on the owner
	setTooling    = "applyset.kubernetes.io/tooling"
	setKinds      = "applyset.kubernetes.io/contains-group-kinds"
	setNamespaces = "applyset.kubernetes.io/additional-namespaces" // other than the owner's
)

// ApplySet makes each owner the parent of an ApplySet (KEP-3659), by which kubectl and other tools
// find its children. Reconcile labels the children with applyset.kubernetes.io/part-of, and first
// the owner with applyset.kubernetes.io/id, if it is not labelled yet. Annotations of the owner
// have the kinds, the namespaces and the tooling, which is NAME/VERSION, such as website/v1.
// Reconcile fails if the owner is an ApplySet of another NAME. Call ApplySet before Reconcile, and
// label the owners' CRD with applyset.kubernetes.io/is-parent-type. Default: no ApplySet.
func (s *Set[O]) ApplySet(tooling string) { s.tooling = tooling }

// applySet returns the ID of the owner's ApplySet, or "".
func (c *call[O]) applySet() string {
	if c.set.tooling == "" {
		return ""
	}
	kind := c.set.owners.GroupVersionKind()
	parts := []string{c.owner.GetName(), c.owner.GetNamespace(), kind.Kind, kind.Group}
	return "applyset-" + digest([]byte(strings.Join(parts, "."))) + "-v1"
}

// labelOwner makes the owner the parent of its ApplySet, if it is not.
func (c *call[O]) labelOwner(ctx context.Context) error {
	if c.set.tooling == "" {
		return nil
	}
	name, _, _ := strings.Cut(c.set.tooling, "/")
	if other := c.owner.GetAnnotations()[setTooling]; other != "" && !strings.HasPrefix(other, name+"/") {
		return fmt.Errorf("children: the owner is an ApplySet of %s; leave out Set.ApplySet, or remove the annotation %s", other, setTooling)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(c.set.owners.GroupVersionKind())
	u.SetNamespace(c.owner.GetNamespace())
	u.SetName(c.owner.GetName())
	u.SetLabels(map[string]string{setID: c.applySet()})
	u.SetAnnotations(c.describeSet())
	differ, err := compare(u.Object, c.owner)
	if err == nil && len(differ.paths) > 0 {
		owners := client.ForKind[O](c.set.client, u.GroupVersionKind())
		_, err = owners.Apply(ctx, client.UnstructuredConfiguration(u), client.UnlessAlready(c.owner), client.FieldOwner("setpoint-applyset"))
	}
	if err != nil {
		return fmt.Errorf("children: labelling the owner as an ApplySet: %w", err)
	}
	return nil
}

// describeSet returns the owner's annotations. They have all kinds, so that they seldom change.
func (c *call[O]) describeSet() map[string]string {
	all, namespaces := map[string]string{setTooling: c.set.tooling}, map[string]bool{}
	var kinds []string
	for _, k := range c.set.kinds {
		kinds = append(kinds, k.GroupVersionKind().GroupKind().String())
	}
	for i := range c.owned {
		namespaces[c.owned[i].Name.Namespace] = true
	}
	for _, d := range c.all {
		namespaces[d.Name.Namespace] = true
	}
	delete(namespaces, "")
	delete(namespaces, c.owner.GetNamespace())
	if len(namespaces) > 0 {
		all[setNamespaces] = strings.Join(slices.Sorted(maps.Keys(namespaces)), ",")
	}
	slices.Sort(kinds)
	all[setKinds] = strings.Join(kinds, ",")
	return all
}
