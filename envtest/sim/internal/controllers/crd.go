// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/watch"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/rules"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/store"
)

// SettleCRDs does what the controllers of CustomResourceDefinitions do: it accepts names,
// serves and withdraws versions, and finishes deletions.
func (s *Controllers) SettleCRDs() {
	t := s.store.Tables[kinds.CRDs]
	for s.observe(); s.crdsChanged && t != nil; s.observe() {
		s.crdsChanged = false
		served := map[schema.GroupVersionResource]bool{}
		waiting := false
		for _, u := range t.Sorted() {
			waiting = s.settleCRD(t, u, served) || waiting
		}
		s.withdraw(served)
		s.observe()
		if waiting && !s.crdsChanged { // objects have finalizers: look after the next write
			s.crdsChanged = true
			return
		}
	}
}

// withdraw withdraws the versions that no CustomResourceDefinition serves any more.
func (s *Controllers) withdraw(served map[schema.GroupVersionResource]bool) {
	for gvr, t := range s.store.Tables {
		if t.CRD && !served[gvr] {
			s.store.Drop(gvr)
			s.Recheck()
		}
	}
}

// settleCRD reports whether a CustomResourceDefinition waits for the end of its objects.
func (s *Controllers) settleCRD(t *store.Table, u *unstructured.Unstructured, served map[schema.GroupVersionResource]bool) bool {
	c, err := kinds.ReadCRD(u)
	if err != nil {
		return false
	}
	s.acceptNames(t, c)
	next := u.DeepCopy()
	ending := c.Metadata.DeletionTimestamp != nil && slices.Contains(c.Metadata.Finalizers, cleanupFinalizer)
	empty := ending && s.emptyCRD(c)
	if empty {
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == cleanupFinalizer }))
	}
	c.StoreStatus(next)
	switch {
	case c.Metadata.DeletionTimestamp != nil && len(next.GetFinalizers()) == 0:
		s.store.Remove(t, next)
		delete(s.crdStores, c.Metadata.Name)
		return false
	case !jsonvalue.Equal(next.Object, u.Object):
		s.store.Record(t, watch.Modified, u, next)
	}
	if c.Is("Established") {
		s.serveCRD(next, c, served)
	}
	return ending && !empty
}

// acceptNames decides which names a CustomResourceDefinition gets, and establishes it.
func (s *Controllers) acceptNames(t *store.Table, c *kinds.CRD) {
	resources, kindNames := s.taken(t, c)
	want, has := c.Spec.Names, &c.Status.AcceptedNames
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
	c.Set("NamesAccepted", status, reason, message)
	switch {
	case c.Is("Established"):
	case c.Is("NamesAccepted"):
		c.Set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
	default:
		c.Set("Established", "False", "NotAccepted", "not all names are accepted")
	}
}

// taken returns the names that other CustomResourceDefinitions of the group have.
func (s *Controllers) taken(t *store.Table, c *kinds.CRD) (resources, kindNames []string) {
	for _, u := range t.Objects {
		other, err := kinds.ReadCRD(u)
		if err != nil || other.Spec.Group != c.Spec.Group || other.Metadata.Name == c.Metadata.Name {
			continue
		}
		names := other.Status.AcceptedNames
		resources = append(append(resources, names.Plural, names.Singular), names.ShortNames...)
		kindNames = append(kindNames, names.Kind, names.ListKind)
	}
	return resources, kindNames
}

func (s *Controllers) serveCRD(u *unstructured.Unstructured, c *kinds.CRD, served map[schema.GroupVersionResource]bool) {
	with := s.crdStores[c.Metadata.Name]
	if with == nil {
		with = s.store.Sibling(kinds.Definition{Resource: kinds.Resource{Group: c.Spec.Group, Name: c.Status.AcceptedNames.Plural}})
	}
	for _, v := range c.Spec.Versions {
		if !v.Served {
			continue
		}
		d := c.Define(v)
		if s.Schemas != nil {
			if schema, err := s.Schemas.Schema(u, v.Name); err == nil {
				d.Schema = schema
			}
		}
		t := s.store.Serve(d, with)
		t.Definition, with = d, t.Storage
		t.Fields = nil // they know the versions and their schemas
		t.StorageKind = d.GVK()
		t.StorageKind.Version = c.Storage()
		t.ConvertWith(c.Webhook())
		served[d.GVR()] = true
	}
	if s.crdStores == nil {
		s.crdStores = map[string]*store.Storage{}
	}
	s.crdStores[c.Metadata.Name] = with
	s.withdrawGuess(c)
}

const cleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// endCRD marks a CustomResourceDefinition as being deleted: its objects go first.
func (s *Controllers) endCRD(t *store.Table, live *unstructured.Unstructured, dry bool) *unstructured.Unstructured {
	u, at := live.DeepCopy(), metav1.Now()
	u.SetDeletionTimestamp(&at)
	if !slices.Contains(u.GetFinalizers(), cleanupFinalizer) {
		u.SetFinalizers(append(u.GetFinalizers(), cleanupFinalizer))
	}
	if c, err := kinds.ReadCRD(u); err == nil {
		c.Set("Terminating", "True", "InstanceDeletionPending",
			"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
		c.StoreStatus(u)
	}
	if dry {
		return u
	}
	return s.store.Record(t, watch.Modified, live, u)
}

// emptyCRD deletes the objects of a CustomResourceDefinition that is being deleted. It
// reports whether none is left: objects with finalizers stay until those are gone.
func (s *Controllers) emptyCRD(c *kinds.CRD) bool {
	var t *store.Table
	for gvr, other := range s.store.Tables {
		if other.CRD && gvr.Group == c.Spec.Group && gvr.Resource == c.Status.AcceptedNames.Plural {
			t = other
		}
	}
	switch {
	case !c.Is("Established"):
		c.Set("Terminating", "False", "NeverEstablished", "resource was never established")
		return true
	case t == nil:
		c.Set("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
		return true
	}
	for _, u := range t.Sorted() {
		if len(u.GetFinalizers()) == 0 {
			s.store.Remove(t, u)
		} else if u.GetDeletionTimestamp() == nil {
			next := u.DeepCopy()
			rules.MarkDeleted(next, 0)
			s.store.Record(t, watch.Modified, u, next)
		}
	}
	if len(t.Objects) > 0 {
		c.Set("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		return false
	}
	c.Set("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
	return true
}

// withdrawGuess stops serving a kind in another way than its definition. If the plural was
// wrong, objects that a test has put there stay.
func (s *Controllers) withdrawGuess(c *kinds.CRD) {
	kind, plural := schema.GroupKind{Group: c.Spec.Group, Kind: c.Status.AcceptedNames.Kind}, c.Status.AcceptedNames.Plural
	for gvr, t := range s.store.Tables {
		if !t.Guessed || t.GVK().GroupKind() != kind {
			continue
		}
		served := slices.ContainsFunc(c.Spec.Versions, func(v kinds.CRDVersion) bool { return v.Served && v.Name == t.Version })
		if t.Name == plural && !served || t.Name != plural && len(t.Objects) == 0 {
			s.store.Drop(gvr)
			s.Recheck()
		}
	}
}
