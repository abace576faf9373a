// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// SettleCRDs does what the controllers of CustomResourceDefinitions do: it accepts names,
// serves and withdraws versions, and finishes deletions.
func (c *Controllers) SettleCRDs() {
	t := c.store.Tables[kinds.CRDs]
	for c.observe(); c.crdsChanged && t != nil; c.observe() {
		c.crdsChanged = false
		served := map[schema.GroupVersionResource]bool{}
		waiting := false
		for _, u := range t.Sorted() {
			waiting = c.settleCRD(t, u, served) || waiting
		}
		c.withdraw(served)
		c.observe()
		if waiting && !c.crdsChanged { // objects have finalizers: look after the next write
			c.crdsChanged = true
			return
		}
	}
}

// withdraw withdraws the versions that no CustomResourceDefinition serves any more.
func (c *Controllers) withdraw(served map[schema.GroupVersionResource]bool) {
	for gvr, t := range c.store.Tables {
		if t.CRD && !served[gvr] {
			c.store.Drop(gvr)
			c.Recheck()
		}
	}
}

// settleCRD reports whether a CustomResourceDefinition waits for the end of its objects.
func (c *Controllers) settleCRD(t *store.Table, u *unstructured.Unstructured, served map[schema.GroupVersionResource]bool) bool {
	crd, err := kinds.ReadCRD(u)
	if err != nil {
		return false
	}
	c.acceptNames(t, crd)
	next := u.DeepCopy()
	ending := crd.Metadata.DeletionTimestamp != nil && slices.Contains(crd.Metadata.Finalizers, cleanupFinalizer)
	empty := ending && c.emptyCRD(crd)
	if empty {
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == cleanupFinalizer }))
	}
	crd.StoreStatus(next)
	switch {
	case crd.Metadata.DeletionTimestamp != nil && len(next.GetFinalizers()) == 0:
		c.store.Remove(t, next)
		delete(c.crdStores, crd.Metadata.Name)
		return false
	case !jsonvalue.Equal(next.Object, u.Object):
		c.store.Record(t, watch.Modified, u, next)
	}
	if crd.Is("Established") {
		c.serveCRD(next, crd, served)
	}
	return ending && !empty
}

// acceptNames decides which names a CustomResourceDefinition gets, and establishes it.
func (c *Controllers) acceptNames(t *store.Table, crd *kinds.CRD) {
	resources, kindNames := c.taken(t, crd)
	want, has := crd.Spec.Names, &crd.Status.AcceptedNames
	status, reason, message := "True", "NoConflicts", "no conflicts found"
	take := func(why string, want string, has *string, taken []string) {
		if want != *has && slices.Contains(taken, want) {
			status, reason, message = "False", why, fmt.Sprintf("%q is already in use", want)
			return
		}
		*has = want
	}
	take("PluralConflict", want.Plural, &has.Plural, resources)
	take("SingularConflict", want.Singular, &has.Singular, resources)
	var used []string
	for _, name := range want.ShortNames {
		if slices.Contains(resources, name) && !slices.Contains(has.ShortNames, name) {
			used = append(used, fmt.Sprintf("%q is already in use", name))
		}
	}
	switch len(used) {
	case 0:
		has.ShortNames = want.ShortNames
	case 1:
		status, reason, message = "False", "ShortNamesConflict", used[0]
	default:
		status, reason, message = "False", "ShortNamesConflict", "["+strings.Join(used, ", ")+"]"
	}
	take("KindConflict", want.Kind, &has.Kind, kindNames)
	take("ListKindConflict", want.ListKind, &has.ListKind, kindNames)
	has.Categories = want.Categories
	crd.Set("NamesAccepted", status, reason, message)
	switch {
	case crd.Is("Established"):
	case crd.Is("NamesAccepted"):
		crd.Set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
	default:
		crd.Set("Established", "False", "NotAccepted", "not all names are accepted")
	}
}

// taken returns the names that other CustomResourceDefinitions of the group have.
func (c *Controllers) taken(t *store.Table, crd *kinds.CRD) (resources, kindNames []string) {
	for _, u := range t.Objects {
		other, err := kinds.ReadCRD(u)
		if err != nil || other.Spec.Group != crd.Spec.Group || other.Metadata.Name == crd.Metadata.Name {
			continue
		}
		names := other.Status.AcceptedNames
		resources = append(append(resources, names.Plural, names.Singular), names.ShortNames...)
		kindNames = append(kindNames, names.Kind, names.ListKind)
	}
	return resources, kindNames
}

func (c *Controllers) serveCRD(u *unstructured.Unstructured, crd *kinds.CRD, served map[schema.GroupVersionResource]bool) {
	with := c.crdStores[crd.Metadata.Name]
	if with == nil {
		with = c.store.Sibling(kinds.Definition{Resource: kinds.Resource{Group: crd.Spec.Group, Name: crd.Status.AcceptedNames.Plural}})
	}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		d := crd.Define(v)
		if c.store.Schemas != nil {
			if schema, err := c.store.Schemas.Schema(u, v.Name); err == nil {
				d.Schema = schema
			}
		}
		t := c.store.Serve(d, with)
		t.Definition, with = d, t.Storage
		t.Fields = nil // they know the versions and their schemas
		t.StorageKind = d.GVK()
		t.StorageKind.Version = crd.Storage()
		t.ConvertWith(crd.Webhook())
		served[d.GVR()] = true
	}
	if c.crdStores == nil {
		c.crdStores = map[string]*store.Storage{}
	}
	c.crdStores[crd.Metadata.Name] = with
	c.withdrawGuess(crd)
}

const cleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// endCRD marks a CustomResourceDefinition as being deleted: its objects go first.
func (c *Controllers) endCRD(t *store.Table, live *unstructured.Unstructured, dry bool) *unstructured.Unstructured {
	u, at := live.DeepCopy(), metav1.Now()
	u.SetDeletionTimestamp(&at)
	if !slices.Contains(u.GetFinalizers(), cleanupFinalizer) {
		u.SetFinalizers(append(u.GetFinalizers(), cleanupFinalizer))
	}
	if crd, err := kinds.ReadCRD(u); err == nil {
		crd.Set("Terminating", "True", "InstanceDeletionPending",
			"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
		crd.StoreStatus(u)
	}
	if dry {
		return u
	}
	return c.store.Record(t, watch.Modified, live, u)
}

// emptyCRD deletes the objects of a CustomResourceDefinition that is being deleted. It
// reports whether none is left: objects with finalizers stay until those are gone.
func (c *Controllers) emptyCRD(crd *kinds.CRD) bool {
	var t *store.Table
	for gvr, other := range c.store.Tables {
		if other.CRD && gvr.Group == crd.Spec.Group && gvr.Resource == crd.Status.AcceptedNames.Plural {
			t = other
		}
	}
	switch {
	case !crd.Is("Established"):
		crd.Set("Terminating", "False", "NeverEstablished", "resource was never established")
		return true
	case t == nil:
		crd.Set("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
		return true
	}
	for _, u := range t.Sorted() {
		if len(u.GetFinalizers()) == 0 {
			c.store.Remove(t, u)
		} else if u.GetDeletionTimestamp() == nil {
			next := u.DeepCopy()
			rules.MarkDeleted(next, 0)
			c.store.Record(t, watch.Modified, u, next)
		}
	}
	if len(t.Objects) > 0 {
		crd.Set("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		return false
	}
	crd.Set("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
	return true
}

// withdrawGuess stops serving a kind in another way than its definition. If the plural was
// wrong, objects that a test has put there stay.
func (c *Controllers) withdrawGuess(crd *kinds.CRD) {
	kind, plural := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Status.AcceptedNames.Kind}, crd.Status.AcceptedNames.Plural
	for gvr, t := range c.store.Tables {
		if !t.Guessed || t.GVK().GroupKind() != kind {
			continue
		}
		served := slices.ContainsFunc(crd.Spec.Versions, func(v kinds.CRDVersion) bool { return v.Served && v.Name == t.Version })
		if t.Name == plural && !served || t.Name != plural && len(t.Objects) == 0 {
			c.store.Drop(gvr)
			c.Recheck()
		}
	}
}
