// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

// copier is an operator that writes a ConfigMap named after each ConfigMap with the label why, and
// may do nothing else.
type copier struct {
	direct    kubernetes.Interface
	namespace string
	mgr       *manager.Manager
}

func newCopier(ctx context.Context) *copier {
	GinkgoHelper()
	c := &copier{}
	var err error
	c.direct, err = kubernetes.NewForConfig(cluster.Config())
	Expect(err).NotTo(HaveOccurred())
	c.namespace, err = cluster.Namespace(ctx, "why-")
	Expect(err).NotTo(HaveOccurred())
	user := "user-" + c.namespace
	everything := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}
	_, err = c.direct.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{everything}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = c.direct.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	cfg := cluster.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	c.mgr = manager.New(cfg, manager.Options{Name: "copier", Logger: slog.New(slog.DiscardHandler)})
	maps := cache.ForScope[*corev1.ConfigMap](c.mgr.Cache(), cache.Scope{Namespaces: cache.NewSet(c.namespace)})
	copies := controller.New("copies", controller.Func[types.NamespacedName](c.reconcile), controller.Options{})
	copies.Watch(source.Kind(maps, handler.Self(), handler.Where(func(_, m *corev1.ConfigMap) bool { return m != nil && m.Labels["why"] == "yes" })))
	secrets := controller.New("secrets", controller.Func[types.NamespacedName](c.reconcile), controller.Options{})
	secrets.Watch(source.Kind(cache.ForScope[*corev1.Secret](c.mgr.Cache(), cache.Scope{Namespaces: cache.NewSet(c.namespace)}), handler.Self()))
	c.mgr.Add(copies)
	c.mgr.Add(secrets)
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- c.mgr.Run(run) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
	})
	return c
}

// reconcile does what the name asks for.
func (c *copier) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	maps := client.For[*corev1.ConfigMap](c.mgr.Client())
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-copy", Labels: map[string]string{"copy": key.Name}}}
	var err error
	switch key.Name {
	case "other-kind":
		_, err = client.For[*corev1.Secret](c.mgr.Client()).Create(ctx, &corev1.Secret{ObjectMeta: m.ObjectMeta})
	case "invalid":
		m.Name = "Not a name"
		_, err = maps.Create(ctx, m)
	case "missing", "unchanged":
		_, err = maps.Update(ctx, m)
	case "conflict":
		m.Name, m.ResourceVersion = key.Name, "1"
		_, err = maps.Update(ctx, m)
	case "terminating":
		m.Namespace = c.namespace + "-gone"
		_, err = maps.Create(ctx, m)
	default:
		_, err = maps.Create(ctx, m)
	}
	return controller.Result{}, err
}

func (c *copier) create(ctx context.Context, name string) {
	GinkgoHelper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"why": "yes"}}, Data: map[string]string{"value": "confidential"}}
	_, err := c.direct.CoreV1().ConfigMaps(c.namespace).Create(ctx, m, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// refuse makes a policy refuse copies of denied. A webhook that is down refuses copies of
// unanswered.
func (c *copier) refuse(ctx context.Context) {
	GinkgoHelper()
	a, name := c.direct.AdmissionregistrationV1(), c.namespace+".example.com"
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	here := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": c.namespace}}
	copyOf := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"copy": name}}
	}
	_, err := a.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rules[0]}}, NamespaceSelector: here, ObjectSelector: copyOf("denied")},
			Validations:      []admissionv1.Validation{{Expression: "false", Message: "no copies today"}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = a.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = a.ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: name, ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}, Rules: rules,
			SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, FailurePolicy: new(admissionv1.Fail),
			NamespaceSelector: here, ObjectSelector: copyOf("unanswered"), TimeoutSeconds: new(int32(1)),
		}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("why", func() {
	It("has the true cause in the first line, with the answers of a real API server", func(ctx SpecContext) {
		c := newCopier(ctx)
		c.refuse(ctx)
		gone, err := c.direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace + "-gone"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.direct.CoreV1().Namespaces().Delete(ctx, gone.Name, metav1.DeleteOptions{})).To(Succeed())
		ask := func(kind, name string) func() string {
			return func() string {
				return why.For(ctx, why.Object{Kind: kind, Namespace: c.namespace, Name: name}, c.mgr).String()
			}
		}
		Eventually(ctx, ask("secrets", "x")).Should(And(ContainSubstring("secrets"), ContainSubstring("reason: Forbidden"),
			ContainSubstring("give the ServiceAccount the rights list and watch on secrets")))
		for name, want := range map[string]struct {
			reason why.Reason
			says   string
		}{
			"other-kind":  {why.Forbidden, `cannot create resource "secrets"`},
			"denied":      {why.Denied, "no copies today"},
			"unanswered":  {why.Unavailable, "failed calling webhook"},
			"invalid":     {why.Invalid, "Not a name"},
			"missing":     {why.Missing, `configmaps "missing-copy" not found`},
			"conflict":    {why.Conflict, "the object has been modified"},
			"terminating": {why.NamespaceTerminating, "because it is being terminated"},
			"fine":        {why.Done, "wrote create configmaps " + c.namespace + "/fine-copy (stored at version "},
		} {
			c.create(ctx, name)
			first := func() string { // the policy and the webhook are not in force at once
				text := ask("cm", name)()
				if strings.Contains(text, "NotWatched") {
					text = ask("configmap", name)()
				}
				Expect(text).NotTo(ContainSubstring("confidential"))
				line, rest, _ := strings.Cut(text, "\n")
				return line + rest[strings.Index(rest, "  reason: "):]
			}
			if name == "denied" || name == "unanswered" {
				Eventually(ctx, func() string {
					_ = c.direct.CoreV1().ConfigMaps(c.namespace).Delete(ctx, name+"-copy", metav1.DeleteOptions{})
					_ = c.direct.CoreV1().ConfigMaps(c.namespace).Delete(ctx, name, metav1.DeleteOptions{})
					c.create(ctx, name)
					return first()
				}).WithTimeout(patience / 2).WithPolling(time.Second).Should(And(ContainSubstring(want.says), ContainSubstring("reason: "+string(want.reason))))
				continue
			}
			Eventually(ctx, first).WithTimeout(patience/4).Should(And(ContainSubstring(want.says), ContainSubstring("reason: "+string(want.reason))), name)
		}
		Eventually(ctx, ask("configmap", "fine-copy")).Should(ContainSubstring("reason: Dropped"))
		Expect(ask("configmap", "nothing")()).To(ContainSubstring("reason: NotFound"))
		Expect(ask("pods", "nothing")()).To(ContainSubstring("watched kinds: ConfigMap.v1, Secret.v1"))
	}, NodeTimeout(2*patience))
})

// C14 on the real API server, whose managed fields name the opponents.
var _ = Describe("two controllers that force a field", func() {
	It("are slowed down, and name each other", func(ctx SpecContext) {
		direct, err := kubernetes.NewForConfig(cluster.Config())
		Expect(err).NotTo(HaveOccurred())
		namespace, err := cluster.Namespace(ctx, "fight-")
		Expect(err).NotTo(HaveOccurred())
		_, err = direct.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		fights := make(chan hook.Fight, 10)
		var mu sync.Mutex
		writes := 0
		for _, name := range []string{"one", "two"} {
			mgr := manager.New(cluster.Config(), manager.Options{Name: name, Logger: slog.New(slog.DiscardHandler), Hook: hook.On(func(e *hook.Fight) { fights <- *e })})
			maps := cache.ForScope[*corev1.ConfigMap](mgr.Cache(), cache.Scope{Namespaces: cache.NewSet(namespace)})
			c := controller.New(name, controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
				m, err := maps.Get(ctx, key)
				if err != nil || m.Data["value"] == name {
					return controller.Result{}, err
				}
				mu.Lock()
				writes++
				mu.Unlock()
				_, err = client.For[*corev1.ConfigMap](mgr.Client()).Apply(ctx, corev1ac.ConfigMap(key.Name, key.Namespace).WithData(map[string]string{"value": name}))
				return controller.Result{}, err
			}), controller.Options{})
			c.Watch(source.Kind(maps, handler.Self(), handler.Where(func(_, m *corev1.ConfigMap) bool { return m != nil && m.Name == "a" })))
			mgr.Add(c)
			run, stop := context.WithCancel(context.WithoutCancel(ctx))
			ended := make(chan error, 1)
			go func() { ended <- mgr.Run(run) }()
			DeferCleanup(func() {
				stop()
				Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
			})
		}
		for range 2 {
			var f hook.Fight
			Eventually(ctx, fights).WithTimeout(patience / 4).Should(Receive(&f))
			other := map[string]string{"one": "two", "two": "one"}[f.Controller]
			Expect(f.By).To(Equal([]string{other}))
			Expect(f.Fields).To(Equal([]string{".data.value"}))
		}
		lapse(ctx, 5*time.Second)
		mu.Lock()
		before := writes
		mu.Unlock()
		lapse(ctx, 5*time.Second)
		mu.Lock()
		defer mu.Unlock()
		Expect(writes-before).To(And(BeNumerically("<=", 14), BeNumerically(">", 0)), "writes in five seconds")
	}, NodeTimeout(patience))
})
