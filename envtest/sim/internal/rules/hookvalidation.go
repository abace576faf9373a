// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateHooks checks a configuration of webhooks. The matchConditions are not checked.
func validateHooks(u *unstructured.Unstructured) field.ErrorList {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, c); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("webhooks"), "", err.Error())}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range c.Webhooks {
		h, at := &c.Webhooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(h, at)...)
		errs = append(errs, validateReviewVersions(h.AdmissionReviewVersions, at.Child("admissionReviewVersions"))...)
		if names[h.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), h.Name))
		}
		names[h.Name] = h.Name != ""
	}
	return errs
}

// validateHook checks a webhook in the order of the real server.
func validateHook(h *admissionregistrationv1.MutatingWebhook, at *field.Path) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(at.Child("name"), h.Name)
	for i, r := range h.Rules {
		errs = append(errs, validateHookRule(r, at.Child("rules").Index(i))...)
	}
	errs = append(errs, oneOf(at.Child("failurePolicy"), h.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	errs = append(errs, oneOf(at.Child("matchPolicy"), h.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, oneOf(at.Child("sideEffects"), h.SideEffects,
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	if t := h.TimeoutSeconds; t != nil && (*t > 30 || *t < 1) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	var selectors metavalidation.LabelSelectorValidationOptions
	errs = append(errs, metavalidation.ValidateLabelSelector(h.NamespaceSelector, selectors, at.Child("namespaceSelector"))...)
	errs = append(errs, metavalidation.ValidateLabelSelector(h.ObjectSelector, selectors, at.Child("objectSelector"))...)
	errs = append(errs, oneOf(at.Child("reinvocationPolicy"), h.ReinvocationPolicy,
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	client := at.Child("clientConfig")
	switch {
	case (h.ClientConfig.URL == nil) == (h.ClientConfig.Service == nil):
		errs = append(errs, field.Required(client, "exactly one of url or service is required"))
	case h.ClientConfig.URL != nil:
		errs = append(errs, validateHookURL(*h.ClientConfig.URL, client.Child("url"))...)
	default:
		errs = append(errs, validateHookService(h.ClientConfig.Service, client.Child("service"))...)
	}
	return errs
}

func oneOf[T ~string](at *field.Path, value *T, known ...T) field.ErrorList {
	if value == nil || slices.Contains(known, *value) {
		return nil
	}
	slices.Sort(known)
	return field.ErrorList{field.NotSupported(at, *value, known)}
}

func validateHookRule(r admissionregistrationv1.RuleWithOperations, at *field.Path) field.ErrorList {
	errs := anyOrSome(at.Child("operations"), r.Operations, "operations")
	for i, o := range r.Operations {
		errs = append(errs, oneOf(at.Child("operations").Index(i), &o, admissionregistrationv1.OperationAll,
			admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	errs = append(errs, anyOrSome(at.Child("apiGroups"), r.APIGroups, "API groups")...)
	errs = append(errs, anyOrSome(at.Child("apiVersions"), r.APIVersions, "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateHookResources(r.Resources, at.Child("resources"))...)
	return append(errs, oneOf(at.Child("scope"), r.Scope,
		admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
}

// anyOrSome checks a list that is "*" or has some other values.
func anyOrSome[T ~string](at *field.Path, list []T, name string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(at, "")}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(at, list, "if '*' is present, must not specify other "+name)}
	}
	return nil
}

// validateHookResources checks the resources of a rule, without overlaps of their wildcards.
func validateHookResources(list []string, at *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	for i, path := range list {
		if path == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
		}
	}
	if len(list) > 1 && slices.Contains(list, "*/*") {
		errs = append(errs, field.Invalid(at, list, "if '*/*' is present, must not specify other resources"))
	}
	return errs
}

func validateReviewVersions(versions []string, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of v1, v1beta1")}
	}
	if !slices.Contains(versions, "v1") && !slices.Contains(versions, "v1beta1") {
		return field.ErrorList{field.Invalid(at, versions, "must include at least one of v1, v1beta1")}
	}
	return nil
}

func validateHookURL(text string, at *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(at, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

func validateHookService(service *admissionregistrationv1.ServiceReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if service.Namespace == "" { // the real server confuses the two
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if service.Name == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if problems := utilvalidation.IsValidPortNum(int(*service.Port)); problems != nil {
		errs = append(errs, field.Invalid(at.Child("port"), *service.Port, "port is not valid: "+strings.Join(problems, ", ")))
	}
	if service.Path == nil || *service.Path == "" || *service.Path == "/" {
		return errs
	}
	path := *service.Path
	if !strings.HasPrefix(path, "/") {
		errs = append(errs, field.Invalid(at.Child("path"), path, "must start with a '/'"))
	}
	for i, step := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if step == "" {
			errs = append(errs, field.Invalid(at.Child("path"), path, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, problem := range utilvalidation.IsDNS1123Subdomain(step) {
			errs = append(errs, field.Invalid(at.Child("path"), path, fmt.Sprintf("segment[%d]: %v", i, problem)))
		}
	}
	return errs
}
