// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	crdKind     = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// Schemas adds the schemas of CustomResourceDefinitions to a server. Package envtest/sim/crd has an
// implementation. Without it, custom objects are stored as they are.
type Schemas interface {
	// Check returns what is wrong with a CustomResourceDefinition, which replaces old; old is nil at
	// creation.
	Check(crd, old *unstructured.Unstructured) field.ErrorList
	// Schema returns the schema of one version of a CustomResourceDefinition.
	Schema(crd *unstructured.Unstructured, version string) (Schema, error)
}

// UseSchemas validates, defaults and prunes custom objects from now on. Call it before Load.
func (s *Server) UseSchemas(with Schemas) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schemas = with
	if t := s.tables[crdResource]; t != nil {
		t.schema = crdSchema{with}
	}
}

// crd is what the server reads of a CustomResourceDefinition.
type crd struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Group    string       `json:"group"`
		Scope    string       `json:"scope"`
		Names    crdNames     `json:"names"`
		Versions []crdVersion `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions     []crdCondition `json:"conditions"`
		AcceptedNames  crdNames       `json:"acceptedNames"`
		StoredVersions []string       `json:"storedVersions"`
	} `json:"status"`
}

type crdNames struct {
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

type crdVersion struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
	Schema  struct {
		OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
	} `json:"schema"`
	Subresources struct {
		Status map[string]any `json:"status"`
		Scale  *struct {
			SpecReplicasPath   string `json:"specReplicasPath"`
			StatusReplicasPath string `json:"statusReplicasPath"`
			LabelSelectorPath  string `json:"labelSelectorPath"`
		} `json:"scale"`
	} `json:"subresources"`
	SelectableFields []struct {
		JSONPath string `json:"jsonPath"`
	} `json:"selectableFields"`
	Columns []printerColumn `json:"additionalPrinterColumns"`
}

type crdCondition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
}

func readCRD(u *unstructured.Unstructured) (*crd, error) {
	c := &crd{}
	return c, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c)
}

func (c *crd) storage() string {
	for _, v := range c.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

func (c *crd) condition(kind string) *crdCondition {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == kind {
			return &c.Status.Conditions[i]
		}
	}
	return nil
}

func (c *crd) is(kind string) bool {
	condition := c.condition(kind)
	return condition != nil && condition.Status == "True"
}

// set sets a condition; its time changes only with its status.
func (c *crd) set(kind, status, reason, message string) {
	next := crdCondition{Type: kind, Status: status, LastTransitionTime: now(), Reason: reason, Message: message}
	old := c.condition(kind)
	if old == nil {
		c.Status.Conditions = append(c.Status.Conditions, next)
		return
	}
	if old.Status == status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	*old = next
}

// crdSchema is the Schema of CustomResourceDefinitions themselves.
type crdSchema struct{ schemas Schemas }

// Default implements Schema.
func (crdSchema) Default(u *unstructured.Unstructured) []error {
	spec, _ := u.Object["spec"].(map[string]any)
	if spec == nil {
		return nil
	}
	if names, _ := spec["names"].(map[string]any); names != nil {
		kind, _ := names["kind"].(string)
		if names["singular"] == nil || names["singular"] == "" {
			names["singular"] = strings.ToLower(kind)
		}
		if kind != "" && (names["listKind"] == nil || names["listKind"] == "") {
			names["listKind"] = kind + "List"
		}
	}
	if spec["conversion"] == nil {
		spec["conversion"] = map[string]any{"strategy": "None"}
	}
	return nil
}

// Validate implements Schema.
func (s crdSchema) Validate(u, old *unstructured.Unstructured, _ string) field.ErrorList {
	c, err := readCRD(u)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	if s.schemas != nil {
		return s.schemas.Check(u, old)
	}
	errs := c.check()
	if old == nil {
		return errs
	}
	if was, err := readCRD(old); err == nil {
		errs = append(errs, c.checkUpdate(was)...)
	}
	return errs
}

// checkUpdate finds changes that a CustomResourceDefinition cannot have.
func (c *crd) checkUpdate(old *crd) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	fixed := func(path *field.Path, value, was string) {
		if value != was {
			errs = append(errs, field.Invalid(path, value, "field is immutable"))
		}
	}
	if old.is("Established") {
		fixed(spec.Child("scope"), c.Spec.Scope, old.Spec.Scope)
		fixed(spec.Child("names", "kind"), c.Spec.Names.Kind, old.Spec.Names.Kind)
	}
	fixed(spec.Child("group"), c.Spec.Group, old.Spec.Group)
	fixed(spec.Child("names", "plural"), c.Spec.Names.Plural, old.Spec.Names.Plural)
	for i, stored := range c.Status.StoredVersions {
		if !slices.ContainsFunc(c.Spec.Versions, func(v crdVersion) bool { return v.Name == stored }) {
			errs = append(errs, field.Invalid(field.NewPath("status", "storedVersions").Index(i), stored, fmt.Sprintf(
				"missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions "+
					"until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", stored)))
		}
	}
	return errs
}

// check finds the usual mistakes. Package envtest/sim/crd finds all.
func (c *crd) check() field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if c.Metadata.Name != c.Spec.Names.Plural+"."+c.Spec.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Metadata.Name, `must be spec.names.plural+"."+spec.group`))
	}
	switch {
	case c.Spec.Group == "":
		errs = append(errs, field.Required(spec.Child("group"), ""))
	case len(validation.IsDNS1123Subdomain(c.Spec.Group)) > 0:
		errs = append(errs, field.Invalid(spec.Child("group"), c.Spec.Group, strings.Join(validation.IsDNS1123Subdomain(c.Spec.Group), ",")))
	case !strings.Contains(c.Spec.Group, "."):
		errs = append(errs, field.Invalid(spec.Child("group"), c.Spec.Group, "should be a domain with at least one dot"))
	}
	switch c.Spec.Scope {
	case "Namespaced", "Cluster":
	case "":
		errs = append(errs, field.Required(spec.Child("scope"), ""))
	default:
		errs = append(errs, field.NotSupported(spec.Child("scope"), c.Spec.Scope, []string{"Cluster", "Namespaced"}))
	}
	storages := 0
	for i, v := range c.Spec.Versions {
		if problems := validation.IsDNS1035Label(v.Name); len(problems) > 0 {
			errs = append(errs, field.Invalid(spec.Child("versions").Index(i).Child("name"), v.Name, strings.Join(problems, ",")))
		}
		if v.Storage {
			storages++
		}
		if v.Schema.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(spec.Child("versions").Index(i).Child("schema", "openAPIV3Schema"), ""))
		}
		if slices.ContainsFunc(c.Spec.Versions[:i], func(other crdVersion) bool { return other.Name == v.Name }) {
			errs = append(errs, field.Invalid(spec.Child("versions"), v.Name, "must contain unique version names"))
		}
	}
	if storages != 1 {
		errs = append(errs, field.Invalid(spec.Child("versions"), c.Spec.Versions, "must have exactly one version marked as storage version"))
	}
	names := c.Spec.Names
	for _, name := range [][2]string{{"plural", names.Plural}, {"singular", names.Singular}, {"kind", names.Kind}, {"listKind", names.ListKind}} {
		if name[1] == "" {
			errs = append(errs, field.Required(spec.Child("names", name[0]), ""))
		}
	}
	return errs
}

// prepareCRD records the storage version, before a CustomResourceDefinition is stored.
func prepareCRD(u *unstructured.Unstructured) {
	c, err := readCRD(u)
	if err != nil || c.storage() == "" || slices.Contains(c.Status.StoredVersions, c.storage()) {
		return
	}
	stored, _, _ := unstructured.NestedSlice(u.Object, "status", "storedVersions")
	_ = unstructured.SetNestedField(u.Object, append(stored, c.storage()), "status", "storedVersions")
}

// settleCRDsLocked does what the controllers of CustomResourceDefinitions do: it accepts names,
// serves and withdraws versions, and finishes deletions.
func (s *Server) settleCRDsLocked() {
	t := s.tables[crdResource]
	for s.crdsChanged {
		s.crdsChanged = false
		served := map[schema.GroupVersionResource]bool{}
		waiting := false
		for _, u := range t.sorted() {
			waiting = s.settleCRDLocked(t, u, served) || waiting
		}
		s.withdrawLocked(served)
		if waiting && !s.crdsChanged { // for objects with finalizers: look again after the next write
			s.crdsChanged = true
			return
		}
	}
}

// withdrawLocked withdraws the versions that no CustomResourceDefinition serves any more.
func (s *Server) withdrawLocked(served map[schema.GroupVersionResource]bool) {
	for gvr, t := range s.tables {
		if t.crd && !served[gvr] {
			delete(s.tables, gvr)
			close(t.gone)
			s.changedLocked()
		}
	}
}

// settleCRDLocked reports whether a CustomResourceDefinition waits for the end of its objects.
func (s *Server) settleCRDLocked(t *table, u *unstructured.Unstructured, served map[schema.GroupVersionResource]bool) bool {
	c, err := readCRD(u)
	if err != nil {
		return false
	}
	s.acceptNamesLocked(t, c)
	next := u.DeepCopy()
	ending := c.Metadata.DeletionTimestamp != nil && slices.Contains(c.Metadata.Finalizers, cleanupFinalizer)
	empty := ending && s.emptyCRDLocked(c)
	if empty {
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == cleanupFinalizer }))
	}
	c.storeStatus(next)
	switch {
	case c.Metadata.DeletionTimestamp != nil && len(next.GetFinalizers()) == 0:
		s.removeLocked(t, next)
		delete(s.crdStores, c.Metadata.Name)
		return false
	case !equal(next.Object, u.Object):
		s.appendLocked(t, modified, u, next)
	}
	if c.is("Established") {
		s.serveCRDLocked(next, c, served)
	}
	return ending && !empty
}

// storeStatus sets the status of u.
func (c *crd) storeStatus(u *unstructured.Unstructured) {
	if status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Status); err == nil {
		u.Object["status"] = status
	}
}

// acceptNamesLocked decides which names a CustomResourceDefinition gets, and establishes it.
func (s *Server) acceptNamesLocked(t *table, c *crd) {
	resources, kinds := s.takenLocked(t, c)
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
	take("KindConflict", want.Kind, &has.Kind, kinds)
	take("ListKindConflict", want.ListKind, &has.ListKind, kinds)
	has.Categories = want.Categories
	c.set("NamesAccepted", status, reason, message)
	switch {
	case c.is("Established"):
	case c.is("NamesAccepted"):
		c.set("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
	default:
		c.set("Established", "False", "NotAccepted", "not all names are accepted")
	}
}

// takenLocked returns the names that other CustomResourceDefinitions of the group have.
func (s *Server) takenLocked(t *table, c *crd) (resources, kinds []string) {
	for _, u := range t.objects {
		other, err := readCRD(u)
		if err != nil || other.Spec.Group != c.Spec.Group || other.Metadata.Name == c.Metadata.Name {
			continue
		}
		names := other.Status.AcceptedNames
		resources = append(append(resources, names.Plural, names.Singular), names.ShortNames...)
		kinds = append(kinds, names.Kind, names.ListKind)
	}
	return resources, kinds
}

// serveCRDLocked serves the versions of an established CustomResourceDefinition.
func (s *Server) serveCRDLocked(u *unstructured.Unstructured, c *crd, served map[schema.GroupVersionResource]bool) {
	with := s.crdStores[c.Metadata.Name]
	if with == nil {
		with = s.siblingLocked(definition{Resource: Resource{Group: c.Spec.Group, Name: c.Status.AcceptedNames.Plural}})
	}
	for _, v := range c.Spec.Versions {
		if !v.Served {
			continue
		}
		d := c.define(v)
		if s.schemas != nil {
			if schema, err := s.schemas.Schema(u, v.Name); err == nil {
				d.schema = schema
			}
		}
		t := s.serveKindLocked(d, with)
		t.definition, with = d, t.store
		t.stored = d.gvk()
		t.stored.Version = c.storage()
		served[d.gvr()] = true
	}
	if s.crdStores == nil {
		s.crdStores = map[string]*store{}
	}
	s.crdStores[c.Metadata.Name] = with
}

// define returns the definition of one version.
func (c *crd) define(v crdVersion) definition {
	names := c.Status.AcceptedNames
	d := definition{
		Resource: Resource{Group: c.Spec.Group, Version: v.Name, Kind: names.Kind, Name: names.Plural, Namespaced: c.Spec.Scope == "Namespaced"},
		strategy: customStrategy(), singular: names.Singular, short: names.ShortNames, categories: names.Categories, verbs: customVerbs,
		crd: true, terminating: c.is("Terminating"), printed: v.Columns,
	}
	for _, f := range v.SelectableFields {
		d.selectable = append(d.selectable, f.JSONPath)
	}
	if d.strategy.status = v.Subresources.Status != nil; d.strategy.status {
		d.sub = append(d.sub, "status")
	}
	if scale := v.Subresources.Scale; scale != nil {
		d.sub = append(d.sub, "scale")
		d.scale = &scalePaths{scale.SpecReplicasPath, scale.StatusReplicasPath, scale.LabelSelectorPath}
	}
	return d
}

const cleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// endCRDLocked marks a CustomResourceDefinition as being deleted: its objects go first.
func (s *Server) endCRDLocked(t *table, live *unstructured.Unstructured, dry bool) *unstructured.Unstructured {
	u, at := live.DeepCopy(), now()
	u.SetDeletionTimestamp(&at)
	if !slices.Contains(u.GetFinalizers(), cleanupFinalizer) {
		u.SetFinalizers(append(u.GetFinalizers(), cleanupFinalizer))
	}
	if c, err := readCRD(u); err == nil {
		c.set("Terminating", "True", "InstanceDeletionPending",
			"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
		c.storeStatus(u)
	}
	if dry {
		return u
	}
	return s.appendLocked(t, modified, live, u)
}

// emptyCRDLocked deletes the objects of a CustomResourceDefinition that is being deleted. It
// reports whether none is left: objects with finalizers stay until those are gone.
func (s *Server) emptyCRDLocked(c *crd) bool {
	var t *table
	for gvr, other := range s.tables {
		if other.crd && gvr.Group == c.Spec.Group && gvr.Resource == c.Status.AcceptedNames.Plural {
			t = other
		}
	}
	switch {
	case !c.is("Established"):
		c.set("Terminating", "False", "NeverEstablished", "resource was never established")
		return true
	case t == nil:
		c.set("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
		return true
	}
	for _, u := range t.sorted() {
		if len(u.GetFinalizers()) == 0 {
			s.removeLocked(t, u)
		} else if u.GetDeletionTimestamp() == nil {
			next := u.DeepCopy()
			markDeleted(next, 0)
			s.appendLocked(t, modified, u, next)
		}
	}
	if len(t.objects) > 0 {
		c.set("Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
		return false
	}
	c.set("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
	return true
}
