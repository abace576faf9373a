// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/rbac"
	"github.com/setpoint-dev/setpoint/webhook"
)

// websiteCRD is shopCRD with the names of the package docs.
var websiteCRD = strings.NewReplacer(
	"shops.shops.example.com", "websites.web.example.com", "shops.example.com", "web.example.com",
	"ShopList", "WebsiteList", "Shop", "Website", "shops", "websites", "shop", "website",
).Replace(shopCRD)

// right is a rule of a role, for a namespace or for the cluster.
type right struct {
	namespace string
	rbacv1.PolicyRule
}

// documentedRights returns the rights in the package doc, or those for certificates alone.
func documentedRights(t *testing.T, register bool) (all []right) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	testkit.NoError(t, err)
	certificates, _, ok := strings.Cut(string(text), "With Options.Register, also these.")
	if !ok {
		t.Fatal("doc.go does not separate the rights of certificates")
	}
	if !register {
		text = []byte(certificates)
	}
	for line := range strings.Lines(string(text)) {
		_, marker, ok := strings.Cut(strings.TrimSpace(line), "+kubebuilder:rbac:")
		if !ok {
			continue
		}
		var r right
		for pair := range strings.SplitSeq(marker, ",") {
			name, value, _ := strings.Cut(pair, "=")
			values := strings.Split(strings.Trim(value, `"`), ";")
			switch name {
			case "groups":
				r.APIGroups = values
			case "resources":
				r.Resources = values
			case "resourceNames":
				r.ResourceNames = values
			case "verbs":
				r.Verbs = values
			case "namespace":
				r.namespace = value
			default:
				t.Fatalf("doc.go: %s", line)
			}
		}
		all = append(all, r)
	}
	return all
}

// TestNeeds_AreTheDocumentedRights: package rbac reviews what the package doc asks for.
func TestNeeds_AreTheDocumentedRights(t *testing.T) {
	for _, register := range []bool{false, true} {
		var want, got []rbac.Rule
		for _, r := range documentedRights(t, register) {
			for _, resource := range r.Resources {
				want = append(want, rbac.Rule{Namespace: r.namespace, Group: r.APIGroups[0], Resource: resource, Names: r.ResourceNames, Verbs: r.Verbs})
			}
		}
		for _, n := range everything(websites(register, "default.websites")).Needs() {
			r := n.Rule
			if r.Why = ""; n.Kind.Kind != "" {
				plural, _ := meta.UnsafeGuessKindToResource(n.Kind)
				r.Group, r.Resource = n.Kind.Group, plural.Resource
			}
			got = append(got, r)
		}
		testkit.Equal(t, fmt.Sprint(rbac.Merge(got)), fmt.Sprint(rbac.Merge(want)), fmt.Sprintf("register %v", register))
	}
}

// without returns rights without a verb of a resource.
func without(all []right, verb, resource string) (rest []right) {
	for _, r := range all {
		for _, one := range r.Resources {
			single := right{r.namespace, *r.DeepCopy()}
			single.Resources = []string{one}
			if one == resource {
				single.Verbs = slices.DeleteFunc(single.Verbs, func(v string) bool { return v == verb })
			}
			if len(single.Verbs) > 0 {
				rest = append(rest, single)
			}
		}
	}
	return rest
}

// realCluster is an API server and its administrator.
type realCluster struct {
	t     *testing.T
	admin *client.Client
	users int
}

// eventually repeats a check until it succeeds, for two minutes at most.
func (c *realCluster) eventually(do func() error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	eventually(ctx, c.t, do)
}

// user makes a user that has rights, and may record events. The rights hold when it returns: the
// API server's authorizer learns of them a moment after they are written.
func (c *realCluster) user(rights []right) *rest.Config {
	c.t.Helper()
	c.users++
	name := fmt.Sprint("operator-", c.users)
	rbac := kubernetes.NewForConfigOrDie(c.admin.Config()).RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}}
	must := func(err error) {
		c.t.Helper()
		testkit.NoError(c.t, err)
	}
	inCluster := []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}}
	for i, r := range rights {
		if r.namespace == "" {
			inCluster = append(inCluster, r.PolicyRule)
			continue
		}
		meta := metav1.ObjectMeta{Name: fmt.Sprint(name, "-", i), Namespace: r.namespace}
		_, err := rbac.Roles(r.namespace).Create(c.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{r.PolicyRule}}, metav1.CreateOptions{})
		must(err)
		_, err = rbac.RoleBindings(r.namespace).Create(c.t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: meta.Name}}, metav1.CreateOptions{})
		must(err)
	}
	meta := metav1.ObjectMeta{Name: name}
	_, err := rbac.ClusterRoles().Create(c.t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: inCluster}, metav1.CreateOptions{})
	must(err)
	_, err = rbac.ClusterRoleBindings().Create(c.t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
	must(err)
	reviews := kubernetes.NewForConfigOrDie(c.admin.Config()).AuthorizationV1().SubjectAccessReviews()
	for _, r := range append(rights, right{PolicyRule: inCluster[0]}) {
		asked := &authorizationv1.ResourceAttributes{Namespace: r.namespace, Verb: r.Verbs[0], Group: r.APIGroups[0], Resource: r.Resources[0]}
		if len(r.ResourceNames) > 0 {
			asked.Name = r.ResourceNames[0]
		}
		c.eventually(func() error {
			got, err := reviews.Create(c.t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: asked}}, metav1.CreateOptions{})
			if err == nil && !got.Status.Allowed {
				err = fmt.Errorf("%s may not %v", name, asked)
			}
			return err
		})
	}
	cfg := rest.CopyConfig(c.admin.Config())
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name}
	return cfg
}

// websites returns webhooks with the names of the package docs, with a defaulter for each name.
func websites(register bool, names ...string) *webhook.Webhooks {
	known := runtime.NewScheme()
	known.AddKnownTypeWithName(schema.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Website"}, &Shop{})
	known.AddKnownTypeWithName(schema.GroupVersionKind{Group: "web.example.com", Version: "v1alpha1", Kind: "Website"}, &ShopAlpha{})
	w := webhook.New(webhook.Options{
		Name: "website-operator", Scheme: known, Register: register,
		Service:      types.NamespacedName{Namespace: "website-system", Name: "website-webhook"},
		Certificates: webhook.CertificateOptions{Secret: types.NamespacedName{Namespace: "website-system", Name: "website-webhook-ca"}},
	})
	for _, name := range names {
		webhook.AddDefaulter(w, func(context.Context, *Shop) error { return nil }, webhook.Registration{Name: name + ".web.example.com"})
	}
	return w
}

// everything adds a validator, a conversion and policies.
func everything(w *webhook.Webhooks) *webhook.Webhooks {
	webhook.AddValidator(w, webhook.Validator[*Shop]{Create: func(context.Context, *Shop) error { return nil }}, webhook.Registration{})
	webhook.AddConversion(w, fromAlpha, toAlpha)
	w.Policy(websitePolicies("object.metadata.name != 'forbidden'")...)
	return w
}

func websitePolicies(expression string) []client.Object {
	match := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		},
	}}}
	name := metav1.ObjectMeta{Name: "website-policy"}
	return []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match, Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: "by the policy"}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: match, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/data", value: {"by": "the policy"}}]`},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name}},
	}
}

// run runs webhooks with a user's configuration until stop is called.
func (c *realCluster) run(hooks *webhook.Webhooks, cfg *rest.Config) (log *testkit.Buffer, stop func()) {
	c.t.Helper()
	testkit.NoError(c.t, hooks.Validate())
	cl, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
	testkit.NoError(c.t, err)
	log = &testkit.Buffer{}
	ctx, cancel := context.WithCancel(logr.NewContextWithSlogLogger(c.t.Context(), slog.New(slog.NewTextHandler(log, nil))))
	rec := events.New(cl, events.Options{Name: "website-operator"})
	recorded, done := make(chan error, 1), make(chan error, 1)
	go func() { recorded <- rec.Run(ctx) }()
	go func() { done <- hooks.Run(ctx, cl, rec) }()
	return log, func() {
		cancel()
		testkit.Equal(c.t, <-done, nil)
		<-recorded
		cl.Close()
	}
}

// reset deletes what webhooks have written.
func (c *realCluster) reset() {
	c.t.Helper()
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		c.delete(admissionregistrationv1.SchemeGroupVersion.WithKind(kind), types.NamespacedName{Name: "website-operator"})
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		c.delete(admissionregistrationv1.SchemeGroupVersion.WithKind(kind), types.NamespacedName{Name: "website-policy"})
		c.delete(admissionregistrationv1.SchemeGroupVersion.WithKind(kind+"Binding"), types.NamespacedName{Name: "website-policy"})
	}
	c.delete(corev1.SchemeGroupVersion.WithKind("Secret"), types.NamespacedName{Namespace: "website-system", Name: "website-webhook-ca"})
	crd := client.ForKind[*unstructured.Unstructured](c.admin, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	none := []byte(`[{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]`)
	testkit.NoError(c.t, testkit.Err(crd.Patch(c.t.Context(), types.NamespacedName{Name: "websites.web.example.com"}, types.JSONPatchType, none)))
}

func (c *realCluster) delete(kind schema.GroupVersionKind, key types.NamespacedName) {
	c.t.Helper()
	if err := client.ForKind[*unstructured.Unstructured](c.admin, kind).Delete(c.t.Context(), key); err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
}

// ready waits until everything is in place.
func (c *realCluster) ready(hooks *webhook.Webhooks) {
	c.t.Helper()
	c.eventually(func() error { return hooks.Check(c.t.Context()) })
}

// TestRealServer_Registers: kube-apiserver, with authorization.
func TestRealServer_Registers(t *testing.T) {
	if os.Getenv("SETPOINT_KUBERNETES") == "1.35" {
		t.Skip("Kubernetes 1.35 does not serve MutatingAdmissionPolicy in v1; see docs/versions.md")
	}
	ctx, admin := realServerWith(t, websiteCRD)
	c := &realCluster{t: t, admin: admin}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "website-system"}}
	testkit.NoError(t, testkit.Err(client.For[*corev1.Namespace](admin).Create(ctx, system)))
	for name, test := range map[string]func(c *realCluster){
		"with exactly the documented rights": testDocumentedRights,
		"the rights of package certs":        testRightsOfCerts,
		"a missing right is named":           testMissingRights,
		"policies are restored":              testPolicies,
		"removed webhooks":                   testRemovedWebhooks,
		"a missing Service":                  testMissingService,
	} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			test(c)
			c.reset()
		})
	}
}

func testDocumentedRights(c *realCluster) {
	hooks := everything(websites(true, "default.websites"))
	log, stop := c.run(hooks, c.user(documentedRights(c.t, true)))
	defer stop()
	c.ready(hooks)
	maps := client.For[*corev1.ConfigMap](c.admin)
	c.eventually(func() error {
		_, err := maps.Create(c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forbidden"}}, client.DryRun())
		if err == nil || !strings.Contains(err.Error(), "by the policy") {
			return fmt.Errorf("the validating policy is not used: %w", err)
		}
		got, err := maps.Create(c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}, client.DryRun())
		if err == nil && got.Data["by"] != "the policy" {
			err = fmt.Errorf("the mutating policy is not used: %v", got.Data)
		}
		return err
	})
	if text := log.String(); strings.Contains(text, "forbidden") || strings.Contains(text, "cannot") {
		c.t.Errorf("the log is\n%s", text)
	}
}

// testRightsOfCerts: without Register, the deployment applies the manifests.
func testRightsOfCerts(c *realCluster) {
	hooks := websites(false, "default.websites")
	webhook.AddConversion(hooks, fromAlpha, toAlpha)
	objects, err := hooks.Manifests()
	testkit.NoError(c.t, err)
	for _, obj := range objects {
		h := client.ForKind[*unstructured.Unstructured](c.admin, obj.GroupVersionKind())
		testkit.NoError(c.t, testkit.Err(h.Apply(c.t.Context(), client.UnstructuredConfiguration(obj))))
	}
	log, stop := c.run(hooks, c.user(documentedRights(c.t, false)))
	defer stop()
	c.ready(hooks)
	if text := log.String(); strings.Contains(text, "forbidden") || strings.Contains(text, "cannot") {
		c.t.Errorf("the log is\n%s", text)
	}
}

// testMissingRights: without one right, Check or the log names it.
func testMissingRights(c *realCluster) {
	all := documentedRights(c.t, true)
	some := map[string][]string{
		"create": {"validatingwebhookconfigurations", "secrets"}, "patch": {"customresourcedefinitions"}, "list": {"mutatingadmissionpolicies"},
		"get": {"mutatingwebhookconfigurations"}, "watch": {"secrets"},
	}
	if os.Getenv("SETPOINT_FULL") != "" {
		some = map[string][]string{}
		for _, r := range all {
			for _, verb := range r.Verbs {
				some[verb] = append(some[verb], r.Resources...)
			}
		}
	}
	for verb, resources := range some {
		for _, resource := range slices.Compact(slices.Sorted(slices.Values(resources))) {
			c.reset()
			hooks := everything(websites(true, "default.websites"))
			log, stop := c.run(hooks, c.user(without(all, verb, resource)))
			want := fmt.Sprintf("cannot %s resource %q", verb, resource)
			ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
			for tries := 1; ctx.Err() == nil && !strings.Contains(fmt.Sprint(hooks.Check(ctx), strings.ReplaceAll(log.String(), `\"`, `"`)), want); tries++ {
				if tries%100 == 0 { // a cancelled request of before may have been carried out
					c.reset()
				}
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
					c.t.Errorf("nothing says %q: %v\n%s", want, hooks.Check(c.t.Context()), log.String())
				}
			}
			cancel()
			stop()
		}
	}
}

func testPolicies(c *realCluster) {
	admin := rest.CopyConfig(c.admin.Config())
	hooks := everything(websites(true))
	log, stop := c.run(hooks, admin)
	c.ready(hooks)
	testkit.Count(c.t, log.String(), `applied a webhook registration" object="ValidatingAdmissionPolicy website-policy"`, 1)
	h := client.For[*admissionregistrationv1.ValidatingAdmissionPolicy](c.admin)
	change := []byte(`[{"op":"replace","path":"/spec/validations/0/message","value":"by some tool"}]`)
	testkit.NoError(c.t, testkit.Err(h.Patch(c.t.Context(), types.NamespacedName{Name: "website-policy"}, types.JSONPatchType, change, client.FieldOwner("some-tool"))))
	c.eventually(func() error {
		got, err := h.GetLive(c.t.Context(), types.NamespacedName{Name: "website-policy"})
		if err == nil && got.Spec.Validations[0].Message != "by the policy" {
			err = fmt.Errorf("the policy is not restored: %v\n%s", got.Spec, log)
		}
		return err
	})
	testkit.Contains(c.t, log.String(), `the field manager \"some-tool\" has changed .spec.validations`)
	stop()
	c.reset()
	hooks = websites(true)
	hooks.Policy(websitePolicies("object.name ==")...)
	_, stop = c.run(hooks, admin)
	defer stop()
	c.eventually(func() error {
		const want = `ValidatingAdmissionPolicy website-policy is not in place: ValidatingAdmissionPolicy.admissionregistration.k8s.io "website-policy" is invalid: ` +
			`spec.validations[0].expression: Invalid value: "object.name ==": compilation failed`
		if err := hooks.Check(c.t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("a mistake in CEL is not named: %w", err)
		}
		return nil
	})
}

// testRemovedWebhooks: the bundles of the removed webhooks have another field owner.
func testRemovedWebhooks(c *realCluster) {
	for _, names := range [][]string{{"one", "two", "three"}, {"two"}, {"two", "four"}, nil} {
		hooks := websites(true, names...)
		log, stop := c.run(hooks, rest.CopyConfig(c.admin.Config()))
		c.eventually(func() error {
			got, err := client.For[*admissionregistrationv1.MutatingWebhookConfiguration](c.admin).GetLive(c.t.Context(), types.NamespacedName{Name: "website-operator"})
			if err != nil {
				return err
			}
			var has []string
			for _, w := range got.Webhooks {
				name, _, _ := strings.Cut(w.Name, ".")
				if has = append(has, name); len(w.ClientConfig.CABundle) == 0 {
					return fmt.Errorf("%s has no bundle", w.Name)
				}
			}
			if !slices.Equal(has, names) {
				return fmt.Errorf("there are %q, and %q are wanted\n%s", has, names, log)
			}
			return hooks.Check(c.t.Context())
		})
		stop()
	}
}

// testMissingService: the user sees the API server's error.
func testMissingService(c *realCluster) {
	hooks := websites(true, "default.websites")
	_, stop := c.run(hooks, rest.CopyConfig(c.admin.Config()))
	defer stop()
	c.ready(hooks)
	site := &unstructured.Unstructured{}
	site.SetGroupVersionKind(schema.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Website"})
	site.SetNamespace("default")
	site.SetName("a")
	h := client.ForKind[*unstructured.Unstructured](c.admin, site.GroupVersionKind())
	c.eventually(func() error {
		_, err := h.Create(c.t.Context(), site, client.DryRun())
		if err == nil || !strings.Contains(err.Error(), `failed calling webhook "default.websites.web.example.com"`) || !strings.Contains(err.Error(), `service "website-webhook" not found`) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}
