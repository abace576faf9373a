// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/crdschema"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
)

// The kind and the resource of CustomResourceDefinitions.
var (
	CRDKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	CRDs    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// CRD is what the server reads of a CustomResourceDefinition.
type CRD struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Group    string       `json:"group"`
		Scope    string       `json:"scope"`
		Names    crdNames     `json:"names"`
		Versions []CRDVersion `json:"versions"`

		Conversion struct {
			Strategy string      `json:"strategy"`
			Webhook  *Conversion `json:"webhook"`
		} `json:"conversion"`
	} `json:"spec"`
	Status struct {
		Conditions     []crdCondition `json:"conditions"`
		AcceptedNames  crdNames       `json:"acceptedNames"`
		StoredVersions []string       `json:"storedVersions"`
	} `json:"status"`
}

// crdNames are the names of a custom kind.
type crdNames struct {
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind,omitempty"`
	Categories []string `json:"categories,omitempty"`
}

// CRDVersion is a version of a custom kind.
type CRDVersion struct {
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

// ReadCRD returns the parts of a CustomResourceDefinition that the server reads.
func ReadCRD(u *unstructured.Unstructured) (*CRD, error) {
	c := &CRD{}
	return c, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c)
}

// Storage returns the version in which objects are stored.
func (c *CRD) Storage() string {
	for _, v := range c.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

func (c *CRD) condition(kind string) *crdCondition {
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == kind {
			return &c.Status.Conditions[i]
		}
	}
	return nil
}

// Is reports whether a condition is true.
func (c *CRD) Is(kind string) bool {
	condition := c.condition(kind)
	return condition != nil && condition.Status == "True"
}

// Set sets a condition; its time changes only with its status.
func (c *CRD) Set(kind, status, reason, message string) {
	next := crdCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now(), Reason: reason, Message: message}
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

// CRDSchema is the Schema of CustomResourceDefinitions themselves.
type CRDSchema struct{ Schemas crdschema.Schemas }

// Default implements crdschema.Schema.
func (CRDSchema) Default(u *unstructured.Unstructured) []error {
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

// Validate implements crdschema.Schema.
func (s CRDSchema) Validate(u, old *unstructured.Unstructured, _ string) field.ErrorList {
	c, err := ReadCRD(u)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	if s.Schemas != nil {
		return s.Schemas.Check(u, old)
	}
	errs := c.check()
	if old == nil {
		return errs
	}
	if was, err := ReadCRD(old); err == nil {
		errs = append(errs, c.checkUpdate(was)...)
	}
	return errs
}

func (c *CRD) checkUpdate(old *CRD) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	fixed := func(path *field.Path, value, was string) {
		if value != was {
			errs = append(errs, field.Invalid(path, value, "field is immutable"))
		}
	}
	if old.Is("Established") {
		fixed(spec.Child("scope"), c.Spec.Scope, old.Spec.Scope)
		fixed(spec.Child("names", "kind"), c.Spec.Names.Kind, old.Spec.Names.Kind)
	}
	fixed(spec.Child("group"), c.Spec.Group, old.Spec.Group)
	fixed(spec.Child("names", "plural"), c.Spec.Names.Plural, old.Spec.Names.Plural)
	for i, stored := range c.Status.StoredVersions {
		if !slices.ContainsFunc(c.Spec.Versions, func(v CRDVersion) bool { return v.Name == stored }) {
			errs = append(errs, field.Invalid(field.NewPath("status", "storedVersions").Index(i), stored, fmt.Sprintf(
				"missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions "+
					"until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", stored)))
		}
	}
	return errs
}

// check finds the usual mistakes. Package envtest/sim/crd finds all.
func (c *CRD) check() field.ErrorList {
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
		} else if path := c.schemaPath(i); path != nil {
			errs = append(errs, checkTypes(v.Schema.OpenAPIV3Schema, path, "at the root")...)
		}
		if slices.ContainsFunc(c.Spec.Versions[:i], func(other CRDVersion) bool { return other.Name == v.Name }) {
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

// schemaPath returns where an error in the schema of version i is. If all versions have the same
// schema, the API server reports its errors once.
func (c *CRD) schemaPath(i int) *field.Path {
	spec, first := field.NewPath("spec"), c.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, v := range c.Spec.Versions {
		if !jsonvalue.Equal(v.Schema.OpenAPIV3Schema, first) {
			return spec.Child("versions").Index(i).Child("schema", "openAPIV3Schema")
		}
	}
	if i > 0 {
		return nil
	}
	return spec.Child("validation", "openAPIV3Schema")
}

// checkTypes finds fields without a type and lists without items. of describes the place of the
// schema in the API server's words.
func checkTypes(schema map[string]any, path *field.Path, of string) field.ErrorList {
	var errs field.ErrorList
	items, hasItems := schema["items"].(map[string]any)
	if schema["type"] == "array" && !hasItems {
		errs = append(errs, field.Required(path.Child("items"), "must be specified"))
	}
	if hasItems {
		errs = append(errs, checkTypes(items, path.Child("items"), "for specified array items")...)
	}
	const ofField = "for specified object fields"
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if property, ok := property.(map[string]any); ok {
			errs = append(errs, checkTypes(property, path.Child("properties").Key(name), ofField)...)
		}
	}
	if additional, ok := schema["additionalProperties"].(map[string]any); ok {
		errs = append(errs, checkTypes(additional, path.Child("additionalProperties"), ofField)...)
	}
	typed := schema["type"] != nil && schema["type"] != ""
	if !typed && schema["x-kubernetes-int-or-string"] != true && schema["x-kubernetes-preserve-unknown-fields"] != true {
		errs = append(errs, field.Required(path.Child("type"), "must not be empty "+of))
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// prepareCRD records the storage version, before a CustomResourceDefinition is stored.
func prepareCRD(u *unstructured.Unstructured) {
	c, err := ReadCRD(u)
	if err != nil || c.Storage() == "" || slices.Contains(c.Status.StoredVersions, c.Storage()) {
		return
	}
	stored, _, _ := unstructured.NestedSlice(u.Object, "status", "storedVersions")
	_ = unstructured.SetNestedField(u.Object, append(stored, c.Storage()), "status", "storedVersions")
}

// StoreStatus sets the status of u.
func (c *CRD) StoreStatus(u *unstructured.Unstructured) {
	if status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Status); err == nil {
		u.Object["status"] = status
	}
}

// Define returns the definition of one version of the kind.
func (c *CRD) Define(v CRDVersion) Definition {
	names := c.Status.AcceptedNames
	d := Definition{
		Resource: Resource{Group: c.Spec.Group, Version: v.Name, Kind: names.Kind, Name: names.Plural, Namespaced: c.Spec.Scope == "Namespaced"},
		strategy: customStrategy(), Singular: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories, Verbs: customVerbs,
		CRD: true, Terminating: c.Is("Terminating"), columns: v.Columns,
	}
	for _, f := range v.SelectableFields {
		d.SelectableFields = append(d.SelectableFields, f.JSONPath)
	}
	if d.Status = v.Subresources.Status != nil; d.Status {
		d.Subresources = append(d.Subresources, "status")
	}
	if scale := v.Subresources.Scale; scale != nil {
		d.Subresources = append(d.Subresources, "scale")
		d.Scale = &scalePaths{scale.SpecReplicasPath, scale.StatusReplicasPath, scale.LabelSelectorPath}
	}
	return d
}

// Conversion names the webhook that converts objects between versions.
type Conversion struct {
	ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig"`
	Versions     []string                                    `json:"conversionReviewVersions"`
}

// Webhook returns the conversion webhook, or nil.
func (c *CRD) Webhook() *Conversion {
	if c.Spec.Conversion.Strategy != "Webhook" {
		return nil
	}
	return c.Spec.Conversion.Webhook
}
