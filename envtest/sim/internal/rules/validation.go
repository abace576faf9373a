// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/setpoint-dev/setpoint/envtest/sim/internal/jsonvalue"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/kinds"
	"github.com/setpoint-dev/setpoint/envtest/sim/internal/managed"
)

// Validate returns the errors of u, which replaces live (nil: is new), in the real server's order.
// An update checks the metadata twice, once for all kinds and once for its kind.
func Validate(d *kinds.Definition, u, live *unstructured.Unstructured, subresource string) field.ErrorList {
	at, meta := field.NewPath("metadata"), managed.Heads(u)
	var errs field.ErrorList
	wrong := !d.BuiltIn && u.GetKind() != d.Kind
	switch {
	case wrong && live == nil:
	case live == nil:
		errs = ValidateMeta(d, meta, at)
	default:
		errs = validation.ValidateObjectMetaAccessor(meta, d.Namespaced, pathSegment, at)
		errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(meta, live, at)...)
		if !d.IsCoreEvents() && !wrong {
			errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(meta, live, at)...)
		}
		errs = append(errs, validateFinalizers(d, u, at)...)
	}
	switch {
	case wrong:
		return append(errs, field.Invalid(field.NewPath("kind"), u.GetKind(), "must be "+d.Kind))
	case d.Schema != nil:
		errs = append(errs, d.Schema.Validate(u, live, subresource)...)
	case !d.BuiltIn, subresource == "status":
	case live == nil:
		errs = append(errs, validateKind(d.Kind, u)...)
	default:
		errs = append(errs, validateUpdate(d, u, live, meta)...)
	}
	return distinct(d, append(errs, validateScale(d, u)...))
}

// validateUpdate checks the fields of a built-in kind in an update. The order and the repetition of
// checks differ between kinds.
func validateUpdate(d *kinds.Definition, u, live *unstructured.Unstructured, accessor metav1.Object) field.ErrorList {
	meta := func() field.ErrorList { return ValidateMeta(d, accessor, field.NewPath("metadata")) }
	is, changes := validateKind(d.Kind, u), validateChange(d.Kind, u, live)
	switch d.Kind {
	case "Pod":
		return append(append(meta(), is...), changes...)
	case "Deployment", "ReplicaSet", "DaemonSet":
		return append(is, changes...)
	case "ConfigMap", "Secret", "ServiceAccount":
		return append(append(changes, meta()...), is...)
	}
	return append(changes, is...)
}

// distinct returns the first of equal errors. The real server drops repeated ones where declarative
// validation may add errors: for all built-in kinds but CustomResourceDefinition and APIService.
func distinct(d *kinds.Definition, errs field.ErrorList) field.ErrorList {
	if !d.BuiltIn || d.Group == "apiextensions.k8s.io" || d.Group == "apiregistration.k8s.io" {
		return errs
	}
	known := sets.New[string]()
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		before := known.Has(err.Error())
		known.Insert(err.Error())
		return before
	})
}

// ValidateMeta checks the metadata of a new object.
func ValidateMeta(d *kinds.Definition, u metav1.Object, at *field.Path) field.ErrorList {
	name := validation.NameIsDNSSubdomain
	switch {
	case !d.BuiltIn:
	case d.Kind == "Namespace" || d.Kind == "Service":
		name = validation.NameIsDNSLabel
	case d.Group == "rbac.authorization.k8s.io", d.IsCoreEvents():
		name = pathSegment
	}
	return append(validation.ValidateObjectMetaAccessor(u, d.Namespaced, name, at), validateFinalizers(d, u, at)...)
}

// pathSegment checks a name that is allowed in a URL path.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return names.IsPathSegmentPrefix(name)
	}
	return names.IsPathSegmentName(name)
}

// validateFinalizers checks that the finalizers of a built-in kind have a domain.
func validateFinalizers(d *kinds.Definition, u metav1.Object, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !d.BuiltIn {
		return nil
	}
	for i, f := range u.GetFinalizers() {
		if !strings.Contains(f, "/") && !slices.Contains(StandardFinalizers, f) {
			errs = append(errs, field.Invalid(at.Child("finalizers").Index(i), f, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// StandardFinalizers need no domain.
var StandardFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

// validateKind checks the rules of a built-in kind that operators meet most. The doc of package
// envtest/sim lists them.
func validateKind(kind string, u *unstructured.Unstructured) field.ErrorList {
	spec := field.NewPath("spec")
	switch kind {
	case "ConfigMap":
		return append(validateKeys(u, "data"), validateKeys(u, "binaryData")...)
	case "Secret":
		return append(validateKeys(u, "data"), validateSecret(u)...)
	case "Event":
		return validateEvent(u)
	case "Lease":
		return validateLease(u)
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return validateHooks(u)
	case "Service":
		return validateService(u)
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet":
		return validateWorkload(kind, u)
	case "Pod":
		return validatePodSpec(jsonvalue.Object(u.Object, "spec"), spec)
	case "Job":
		return validatePodSpec(jsonvalue.Object(u.Object, "spec", "template", "spec"), spec.Child("template", "spec"))
	case "CronJob":
		return validatePodSpec(jsonvalue.Object(u.Object, "spec", "jobTemplate", "spec", "template", "spec"), spec.Child("jobTemplate", "spec", "template", "spec"))
	}
	return nil
}

// validateKeys checks the keys of a ConfigMap or Secret.
func validateKeys(u *unstructured.Unstructured, name string) field.ErrorList {
	var errs field.ErrorList
	for _, key := range sortedKeys(jsonvalue.Object(u.Object, name)) {
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, message))
		}
		if _, also := jsonvalue.Object(u.Object, "binaryData")[key]; also && name == "data" {
			errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, "duplicate of key present in binaryData"))
		}
	}
	return errs
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// validateSecret checks that a Secret has the keys of its type.
func validateSecret(u *unstructured.Unstructured) field.ErrorList {
	data := jsonvalue.Object(u.Object, "data")
	required := map[any][]string{
		string(corev1.SecretTypeDockercfg):        {corev1.DockerConfigKey},
		string(corev1.SecretTypeDockerConfigJson): {corev1.DockerConfigJsonKey},
		string(corev1.SecretTypeSSHAuth):          {corev1.SSHAuthPrivateKey},
		string(corev1.SecretTypeTLS):              {corev1.TLSCertKey, corev1.TLSPrivateKeyKey},
	}[u.Object["type"]]
	var errs field.ErrorList
	for _, key := range required {
		if data[key] == nil {
			errs = append(errs, field.Required(field.NewPath("data").Key(key), ""))
		}
	}
	return errs
}

// validateEvent checks that an Event is in the namespace of its object. With an eventTime, the API
// server compares only Events about cluster-scoped objects, and allows kube-system, too.
func validateEvent(u *unstructured.Unstructured) field.ErrorList {
	about := "regarding"
	if u.GetAPIVersion() == "v1" {
		about = "involvedObject"
	}
	of, _ := jsonvalue.Object(u.Object, about)["namespace"].(string)
	timed := u.Object["eventTime"] != nil
	switch in := u.GetNamespace(); {
	case of == "" && in == metav1.NamespaceDefault, of == "" && timed && in == metav1.NamespaceSystem:
		return nil
	case of != "" && (timed || of == in):
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), of, "does not match event.namespace")}
}

func validateLease(u *unstructured.Unstructured) field.ErrorList {
	at, spec := field.NewPath("spec"), jsonvalue.Object(u.Object, "spec")
	var errs field.ErrorList
	if n, ok := spec["leaseDurationSeconds"].(int64); ok && n <= 0 {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), n, "must be greater than 0"))
	}
	if n, ok := spec["leaseTransitions"].(int64); ok && n < 0 {
		errs = append(errs, field.Invalid(at.Child("leaseTransitions"), n, validation.IsNegativeErrorMsg))
	}
	return errs
}

var (
	protocols    = []string{string(corev1.ProtocolSCTP), string(corev1.ProtocolTCP), string(corev1.ProtocolUDP)}
	serviceTypes = []string{
		string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeExternalName), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeNodePort),
	}
)

// headless reports whether a Service has no cluster IP.
func headless(u *unstructured.Unstructured) bool {
	addresses, _ := jsonvalue.Object(u.Object, "spec")["clusterIPs"].([]any)
	return len(addresses) == 1 && addresses[0] == corev1.ClusterIPNone
}

// validateAddresses checks that the two fields with addresses of a Service agree. The real server
// does this before it validates anything else.
func validateAddresses(u *unstructured.Unstructured) field.ErrorList {
	spec, at := jsonvalue.Object(u.Object, "spec"), field.NewPath("spec", "clusterIPs")
	all, _ := spec["clusterIPs"].([]any)
	if spec["type"] == string(corev1.ServiceTypeExternalName) || len(all) == 0 || all[0] == spec["clusterIP"] {
		return nil
	}
	return field.ErrorList{field.Invalid(at, all, "first value must match `clusterIP`")}
}

func validateService(u *unstructured.Unstructured) field.ErrorList {
	at, spec := field.NewPath("spec"), jsonvalue.Object(u.Object, "spec")
	ports, _ := spec["ports"].([]any)
	var errs field.ErrorList
	if len(ports) == 0 && !headless(u) && spec["type"] != string(corev1.ServiceTypeExternalName) {
		errs = append(errs, field.Required(at.Child("ports"), ""))
	}
	if kind := spec["type"]; headless(u) && (kind == string(corev1.ServiceTypeLoadBalancer) || kind == string(corev1.ServiceTypeNodePort)) {
		errs = append(errs, field.Invalid(at.Child("clusterIPs").Index(0), corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", kind)))
	}
	for i, p := range ports {
		port, _ := p.(map[string]any)
		at := at.Child("ports").Index(i)
		if len(ports) > 1 && (port["name"] == nil || port["name"] == "") {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		errs = append(errs, validatePort(port["port"], at.Child("port"))...)
		if protocol, ok := port["protocol"].(string); ok && !slices.Contains(protocols, protocol) {
			errs = append(errs, field.NotSupported(at.Child("protocol"), protocol, protocols))
		}
		if target, ok := port["targetPort"]; ok {
			if target == int64(0) { // the default
				target = port["port"]
			}
			errs = append(errs, validatePort(target, at.Child("targetPort"))...)
		}
	}
	if kind, ok := spec["type"].(string); ok && kind != "" && !slices.Contains(serviceTypes, kind) {
		errs = append(errs, field.NotSupported(at.Child("type"), kind, serviceTypes))
	}
	return errs
}

// validatePort checks a number; names of ports pass.
func validatePort(value any, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n, ok := value.(int64); ok {
		for _, message := range utilvalidation.IsValidPortNum(int(n)) {
			errs = append(errs, field.Invalid(at, n, message))
		}
	}
	return errs
}

// validateWorkload checks replicas, selector and template.
func validateWorkload(kind string, u *unstructured.Unstructured) field.ErrorList {
	at, spec := field.NewPath("spec"), jsonvalue.Object(u.Object, "spec")
	var errs field.ErrorList
	if n, ok := spec["replicas"].(int64); ok && n < 0 {
		errs = append(errs, field.Invalid(at.Child("replicas"), n, validation.IsNegativeErrorMsg))
	}
	template := at.Child("template")
	selector, given := spec["selector"].(map[string]any)
	typed := &metav1.LabelSelector{}
	var matches labels.Selector
	if !given {
		errs = append(errs, field.Required(at.Child("selector"), ""))
	} else {
		// Decoding has checked it.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(selector, typed)
		errs = append(errs, metavalidation.ValidateLabelSelector(typed, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
		if len(typed.MatchLabels)+len(typed.MatchExpressions) == 0 {
			errs = append(errs, field.Invalid(at.Child("selector"), typed, "empty selector is invalid for "+strings.ToLower(kind)))
		}
	}
	matches, _ = metav1.LabelSelectorAsSelector(typed)
	has, _, _ := unstructured.NestedStringMap(spec, "template", "metadata", "labels")
	if !given || matches == nil || !matches.Empty() && !matches.Matches(labels.Set(has)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), has, "`selector` does not match template `labels`"))
	}
	return append(errs, validatePodSpec(jsonvalue.Object(spec, "template", "spec"), template.Child("spec"))...)
}

// validatePodSpec checks the names and images of containers.
func validatePodSpec(spec map[string]any, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	names := map[string]bool{}
	errs = append(errs, validateContainers(containers, names, at.Child("containers"))...)
	more, _ := spec["initContainers"].([]any)
	return append(errs, validateContainers(more, names, at.Child("initContainers"))...)
}

func validateContainers(containers []any, names map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range containers {
		c, _ := c.(map[string]any)
		at := at.Index(i)
		name, _ := c["name"].(string)
		switch {
		case name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names[name]:
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		default:
			for _, message := range utilvalidation.IsDNS1123Label(name) {
				errs = append(errs, field.Invalid(at.Child("name"), name, message))
			}
		}
		names[name] = true
		errs = append(errs, validateImage(c, at)...)
	}
	return errs
}

func validateImage(container map[string]any, at *field.Path) field.ErrorList {
	image, _ := container["image"].(string)
	switch {
	case image == "":
		return field.ErrorList{field.Required(at.Child("image"), "")}
	case strings.TrimSpace(image) != image:
		return field.ErrorList{field.Invalid(at.Child("image"), image, "must not have leading or trailing whitespace")}
	}
	return nil
}

// validateScale checks the replicas of a custom kind with a scale subresource.
func validateScale(d *kinds.Definition, u *unstructured.Unstructured) field.ErrorList {
	if d.BuiltIn || d.Scale == nil {
		return nil
	}
	var errs field.ErrorList
	for _, path := range []string{d.Scale.SpecReplicas, d.Scale.StatusReplicas} {
		if n, ok, _ := unstructured.NestedInt64(u.Object, kinds.Steps(path)...); ok && n < 0 {
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		}
	}
	return errs
}
