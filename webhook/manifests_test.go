// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/webhook"
)

func rule(group, resource string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}
}

func allow(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	return nil, nil
}

func yamlOf(t *testing.T, w *webhook.Webhooks) string {
	t.Helper()
	var text strings.Builder
	testkit.NoError(t, w.WriteYAML(&text))
	return text.String()
}

const wantYAML = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: shop-operator
webhooks:
- admissionReviewVersions:
  - v1
  clientConfig:
    service:
      name: shop-webhook
      namespace: shop-system
      path: /default.shops.shops.example.com
      port: 443
  failurePolicy: Fail
  matchPolicy: Equivalent
  name: default.shops.shops.example.com
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
      - shop-system
  objectSelector: {}
  reinvocationPolicy: Never
  rules:
  - apiGroups:
    - shops.example.com
    apiVersions:
    - v1
    operations:
    - CREATE
    - UPDATE
    resources:
    - shops
    scope: '*'
  sideEffects: None
  timeoutSeconds: 10
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: shop-operator
webhooks:
- admissionReviewVersions:
  - v1
  clientConfig:
    service:
      name: shop-webhook
      namespace: shop-system
      path: /validate.shops.shops.example.com
      port: 443
  failurePolicy: Ignore
  matchPolicy: Exact
  name: validate.shops.shops.example.com
  namespaceSelector:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
      - shop-system
    matchLabels:
      shops: "yes"
  objectSelector: {}
  rules:
  - apiGroups:
    - shops.example.com
    apiVersions:
    - v1
    operations:
    - DELETE
    resources:
    - shops
    scope: '*'
  sideEffects: NoneOnDryRun
  timeoutSeconds: 3
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: shops.shops.example.com
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service:
          name: shop-webhook
          namespace: shop-system
          path: /convert
          port: 443
      conversionReviewVersions:
      - v1
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: shops
spec:
  policyName: shops
  validationActions:
  - Deny
`

// registered has a webhook of each type, a conversion and a policy.
func registered() *webhook.Webhooks {
	w := converting()
	webhook.AddDefaulter(w, func(context.Context, *Shop) error { return nil }, webhook.Registration{})
	webhook.AddValidator(w, webhook.Validator[*Shop]{Delete: func(context.Context, *Shop) error { return nil }}, webhook.Registration{
		FailurePolicy: admissionregistrationv1.Ignore, MatchPolicy: admissionregistrationv1.Exact, Timeout: 3 * time.Second, SideEffects: true,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"shops": "yes"}},
	})
	w.Policy(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "shops"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "shops", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	return w
}

func TestWriteYAML_HasSafeDefaultsAndIsTheSameEachTime(t *testing.T) {
	for range 5 {
		if got := yamlOf(t, registered()); got != wantYAML {
			t.Fatalf("got\n%s", got)
		}
	}
}

func TestManifests_WithAURL(t *testing.T) {
	w := webhook.New(webhook.Options{Name: "shop-operator", Scheme: shops(), URL: "https://localhost:9443/"})
	webhook.AddConversion(w, fromAlpha, toAlpha)
	webhook.AddDefaulter(w, func(context.Context, *Shop) error { return nil }, webhook.Registration{})
	text := yamlOf(t, w)
	for _, want := range []string{"url: https://localhost:9443/convert\n", "url: https://localhost:9443/default.shops.shops.example.com\n", "namespaceSelector: {}\n"} {
		testkit.Contains(t, text, want, fmt.Sprintf("%q is missing in", want))
	}
}

// TestManifests_NameTheResourcesOfPlurals: in rules, in names and in the CRD of a conversion.
func TestManifests_NameTheResourcesOfPlurals(t *testing.T) {
	kind := schema.GroupKind{Group: "shops.example.com", Kind: "Shop"}
	o := webhook.Options{Name: "shop-operator", Scheme: shops(), URL: "https://localhost:9443", Plurals: map[schema.GroupKind]string{kind: "stores"}}
	w := webhook.New(o)
	webhook.AddConversion(w, fromAlpha, toAlpha)
	webhook.AddDefaulter(w, func(context.Context, *Shop) error { return nil }, webhook.Registration{})
	webhook.AddValidator(w, webhook.Validator[*Shop]{Create: func(context.Context, *Shop) error { return nil }}, webhook.Registration{})
	text := yamlOf(t, w)
	for want, times := range map[string]int{
		"    - stores\n": 2, "name: default.stores.shops.example.com\n": 1, "name: validate.stores.shops.example.com\n": 1,
		"  name: stores.shops.example.com\n": 1, "shops.shops": 0,
	} {
		testkit.Count(t, text, want, times)
	}
	o.Plurals[kind] = "Stores"
	testkit.ErrorContains(t, o.Validate(), `Plurals: "Stores" is not the name of a resource for the kind Shop.shops.example.com`, "Validate returns")
}

// TestManifests_WildcardsExcludeWhatMustNotStop: a rule with "*" has match conditions.
func TestManifests_WildcardsExcludeWhatMustNotStop(t *testing.T) {
	const all = "leases customresourcedefinitions apiservices nodes certificatesigningrequests csinodes volumeattachments persistentvolumes ipaddresses " +
		"tokenreviews selfsubjectreviews subjectaccessreviews localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews apiserver"
	for _, test := range []struct {
		group, resource string
		policy          admissionregistrationv1.FailurePolicyType
		want            string
	}{
		{"*", "*", "", all},
		{"*", "*/*", admissionregistrationv1.Ignore, "leases"},
		{"coordination.k8s.io", "*", "", "leases"},
		{"", "*", "", "nodes persistentvolumes apiserver"},
		{"storage.k8s.io", "*", "", "csinodes volumeattachments"},
		{"rbac.authorization.k8s.io", "clusterroles", "", "apiserver"},
		{"rbac.authorization.k8s.io", "clusterroles", admissionregistrationv1.Ignore, ""},
		{"apps", "*", "", ""},
		{"*", "deployments", "", ""},
	} {
		w := hooks()
		w.Validating(allow, webhook.Registration{Name: "all.shops.example.com", Rules: rule(test.group, test.resource), FailurePolicy: test.policy})
		text := strings.Join(strings.Fields(yamlOf(t, w)), " ") // YAML folds long lines
		var got []string
		for resource := range strings.FieldsSeq(all) {
			expression := `request.resource.resource == "` + resource + `"`
			if resource == "apiserver" {
				expression = `request.userInfo.username != "system:apiserver"`
			}
			if strings.Contains(text, expression) && strings.Contains(text, "name: exclude-"+resource) {
				got = append(got, resource)
			}
		}
		testkit.Equal(t, strings.Join(got, " "), test.want, fmt.Sprintf("%s of group %q", test.resource, test.group), fmt.Sprintf("excludes %v", got))
	}
}

func TestValidate_NamesEachMistake(t *testing.T) {
	const name = "all.shops.example.com"
	set := func(change func(*webhook.Registration)) webhook.Registration {
		r := webhook.Registration{Name: name, Rules: rule("", "pods")}
		change(&r)
		return r
	}
	for want, r := range map[string]webhook.Registration{
		`webhook "all.example": Registration.Name is not a domain name with three parts or more; use one such as validate.websites.web.example.com`: set(func(r *webhook.Registration) { r.Name = "all.example" }),
		`webhook "A.b.c": Registration.Name is not a domain name`:                                                                                   set(func(r *webhook.Registration) { r.Name = "A.b.c" }),
		`Registration.Timeout is 31s; use whole seconds from 1s to 30s`:                                                                             set(func(r *webhook.Registration) { r.Timeout = 31 * time.Second }),
		`Registration.Timeout is 1.5s; use whole seconds from 1s to 30s`:                                                                            set(func(r *webhook.Registration) { r.Timeout = 1500 * time.Millisecond }),
		`Registration.FailurePolicy is "Never"; use Fail or Ignore`:                                                                                 set(func(r *webhook.Registration) { r.FailurePolicy = "Never" }),
		`Registration.MatchPolicy is "Same"; use Equivalent or Exact`:                                                                               set(func(r *webhook.Registration) { r.MatchPolicy = "Same" }),
		`Registration.Reinvocation is "Always"; use Never or IfNeeded`:                                                                              set(func(r *webhook.Registration) { r.Reinvocation = "Always" }),
		`Registration.Reinvocation is IfNeeded; the API server calls only mutating webhooks again`:                                                  set(func(r *webhook.Registration) { r.Reinvocation = admissionregistrationv1.IfNeededReinvocationPolicy }),
		`Registration.ObjectSelector: "Some" is not a valid label selector operator`: set(func(r *webhook.Registration) {
			r.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Some"}}}
		}),
		`Registration.Rules: a rule has no Operations, APIGroups, APIVersions or Resources; fill`: set(func(r *webhook.Registration) { r.Rules[0].APIGroups = nil }),
		`Registration.Rules: a rule has leases.coordination.k8s.io, which could lock out the operator: while the webhook does not answer, no replica could become the leader, and no kubelet could report its health; remove the rule`: set(func(r *webhook.Registration) {
			r.Rules, r.FailurePolicy = rule("*", "leases"), admissionregistrationv1.Ignore
		}),
		`a rule has customresourcedefinitions.apiextensions.k8s.io, which could lock out the operator: while the webhook does not answer, the operator could not write the CA of its own conversion; remove the rule, set FailurePolicy to Ignore, or use Policy`: set(func(r *webhook.Registration) {
			r.Rules = rule("apiextensions.k8s.io", "customresourcedefinitions/status")
		}),
		`a rule has validatingwebhookconfigurations, for which the API server calls no webhooks; remove the rule`: set(func(r *webhook.Registration) {
			r.Rules = rule("admissionregistration.k8s.io", "validatingwebhookconfigurations")
		}),
	} {
		w := hooks()
		w.Validating(allow, r)
		err := w.Validate()
		testkit.ErrorContains(t, err, want)
		testkit.NotContains(t, fmt.Sprint(err), "\n")
		testkit.Equal(t, fmt.Sprint(testkit.Err(w.Manifests())), fmt.Sprint(err), "Manifests returns")
	}
	w := hooks()
	w.Validating(allow, set(func(r *webhook.Registration) {
		r.Rules, r.FailurePolicy = rule("", "nodes"), admissionregistrationv1.Ignore
	}))
	testkit.Equal(t, w.Validate(), nil, "nodes with the policy Ignore")
}

func TestValidate_NamesWrongOptions(t *testing.T) {
	right := webhook.Options{Name: "a", Scheme: shops(), Service: types.NamespacedName{Namespace: "b", Name: "c"}}
	set := func(change func(*webhook.Options)) webhook.Options {
		o := right
		change(&o)
		return o
	}
	for want, o := range map[string]webhook.Options{
		"webhook.Options.Scheme: it is nil":                       set(func(o *webhook.Options) { o.Scheme = nil }),
		`webhook.Options.Name: "A b" is not a name`:               set(func(o *webhook.Options) { o.Name = "A b" }),
		"webhook.Options.Service: the namespace or the name":      set(func(o *webhook.Options) { o.Service.Namespace = "" }),
		`webhook.Options.URL: "http://x" is not like https://`:    set(func(o *webhook.Options) { o.URL = "http://x" }),
		"webhook.Options.ServicePort: 65536 is not a port; use 1": set(func(o *webhook.Options) { o.ServicePort = 65536 }),
	} {
		testkit.ErrorContains(t, webhook.New(o).Validate(), want)
	}
	testkit.Equal(t, webhook.New(right).Validate(), nil)
}

func TestPolicy_MistakesAreNamed(t *testing.T) {
	w := hooks()
	named := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	w.Policy(named, named, &admissionregistrationv1.ValidatingAdmissionPolicy{}, &corev1.Pod{}, nil)
	w.Policy(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	const want = `webhook.Policy: MutatingAdmissionPolicy a has been added before; give each a name of its own
webhook.Policy: the ValidatingAdmissionPolicy has no name
webhook.Policy: a *v1.Pod is not an admission policy or its binding; give the types of admissionregistration.k8s.io/v1
webhook.Policy: the object is nil
webhook.Policy: ValidatingAdmissionPolicyBinding b has no spec.policyName; set the name of its policy
webhook.Policy: ValidatingAdmissionPolicyBinding b has no spec.validationActions; set Deny
webhook.Policy: MutatingAdmissionPolicy a has no binding, so the API server would never evaluate it; add a MutatingAdmissionPolicyBinding with spec.policyName "a"`
	testkit.Equal(t, fmt.Sprint(w.Validate()), want)
	testkit.Equal(t, named.Kind, "", "Policy has changed its argument")
}
