// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// limited is a cluster in which operators have only the rights that a test grants.
type limited struct {
	*envtest.Cluster

	direct kubernetes.Interface
}

// newLimited starts a cluster that enforces rights for owner references.
func newLimited(ctx context.Context) *limited {
	GinkgoHelper()
	c, err := envtest.Start(ctx, envtest.Options{APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Stop)
	l := &limited{Cluster: c}
	l.direct, err = kubernetes.NewForConfig(c.Config())
	Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"system", "shop"} {
		_, err := l.direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	// So that the first replica must update it.
	_, err = l.direct.CoordinationV1().Leases("system").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "copier"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return l
}

// grantedRole is a Role, a ClusterRole, or a List of them, as the library prints them.
type grantedRole struct {
	Kind     string              `json:"kind"`
	Metadata metav1.ObjectMeta   `json:"metadata"`
	Rules    []rbacv1.PolicyRule `json:"rules"`
	Items    []grantedRole       `json:"items"`
}

// grant creates the roles of a YAML text, and binds them to a ServiceAccount of the namespace
// system.
func (l *limited) grant(ctx context.Context, account, text string) {
	GinkgoHelper()
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "system", Name: account}}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var r grantedRole
		Expect(yaml.Unmarshal([]byte(document), &r)).To(Succeed(), document)
		for _, r := range append(r.Items, r) {
			meta := metav1.ObjectMeta{Name: r.Metadata.Name + "-" + account, Namespace: r.Metadata.Namespace}
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: r.Kind, Name: meta.Name}
			var err, bound error
			switch api := l.direct.RbacV1(); r.Kind {
			case "ClusterRole":
				_, err = api.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: r.Rules}, metav1.CreateOptions{})
				_, bound = api.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
			case "Role":
				_, err = api.Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: r.Rules}, metav1.CreateOptions{})
				_, bound = api.RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
			}
			Expect(err).NotTo(HaveOccurred())
			Expect(bound).NotTo(HaveOccurred())
		}
	}
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// missing returns what the lines about missing rights have.
func (l *logged) missing() (roles []string, missing [][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text.Bytes()) {
		var e struct {
			Role    string
			Missing []string
		}
		if json.Unmarshal(line, &e) == nil && e.Missing != nil {
			roles, missing = append(roles, e.Role), append(missing, e.Missing)
		}
	}
	return roles, missing
}

// run runs an operator as a ServiceAccount, until stop is called. For each ConfigMap with the label
// copy it applies an owned Secret, records an event, and marks the ConfigMap.
func (l *limited) run(ctx context.Context, account string) (mgr *manager.Manager, log *logged, stop func()) {
	GinkgoHelper()
	cfg, err := l.ConfigFor("system:serviceaccount:system:" + account)
	Expect(err).NotTo(HaveOccurred())
	log = &logged{}
	mgr = manager.New(cfg, manager.Options{
		Name: "copier", Logger: slog.New(slog.NewJSONHandler(log, nil)),
		LeaderElection: &leaderelection.Options{Lease: "copier", Namespace: "system"},
	})
	maps := cache.For[*corev1.ConfigMap](mgr.Cache())
	recorder := events.For(mgr, events.Options{})
	c := controller.New("copier", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		obj, err := maps.Get(ctx, key)
		if err != nil || obj.Labels["copy"] == "" {
			return controller.Result{}, client.IgnoreNotFound(err)
		}
		secret := corev1ac.Secret(key.Name, key.Namespace).WithOwnerReferences(maps.OwnerRef(obj)).WithStringData(obj.Data)
		if _, err := client.For[*corev1.Secret](mgr.Client()).Apply(ctx, secret); err != nil {
			return controller.Result{}, err
		}
		recorder.Eventf(ctx, obj, events.Normal, "Copied", "", "copied")
		done := []byte(`{"metadata":{"annotations":{"copied":"` + obj.Labels["copy"] + `"}}}`)
		_, err = client.For[*corev1.ConfigMap](mgr.Client()).Patch(ctx, key, types.MergePatchType, done)
		return controller.Result{}, err
	}), controller.Options{})
	c.Watch(source.Kind(maps, handler.Self()))
	c.Watch(source.Kind(cache.For[*corev1.Secret](mgr.Cache()), handler.Owner(maps)))
	mgr.Add(c)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Run(running) }()
	stop = sync.OnceFunc(func() {
		cancel()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
	})
	DeferCleanup(stop)
	return mgr, log, stop
}

// copied waits until the operator has copied a new ConfigMap, and has recorded that.
func (l *limited) copied(ctx context.Context, name string) {
	GinkgoHelper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"copy": name}}, Data: map[string]string{"a": "b"}}
	_, err := l.direct.CoreV1().ConfigMaps("shop").Create(ctx, m, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		got, err := l.direct.CoreV1().ConfigMaps("shop").Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.Annotations).To(HaveKeyWithValue("copied", name))
		all, err := l.direct.EventsV1().Events("shop").List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		recorded := false
		for _, e := range all.Items {
			recorded = recorded || e.Regarding.Name == name
		}
		g.Expect(recorded).To(BeTrue())
	}).WithTimeout(patience).WithPolling(100 * time.Millisecond).Should(Succeed())
}

const almostEnough = `kind: ClusterRole
metadata: {name: work}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [create, list, patch, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [patch]}
- {apiGroups: [""], resources: [configmaps/finalizers], verbs: [update]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [patch]}
---
kind: Role
metadata: {name: work, namespace: system}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, get, watch]}
`

var _ = Describe("Rights", func() {
	It("that are missing are in the log of the start, with a role that is enough", func(ctx SpecContext) {
		l := newLimited(ctx)
		l.grant(ctx, "copier", almostEnough)
		var mgr *manager.Manager
		var log *logged
		var roles []string
		Eventually(func(g Gomega) { // until the API server's authorizer has seen the roles
			var stop func()
			mgr, log, stop = l.run(ctx, "copier")
			var missing [][]string
			g.Eventually(func() []string {
				roles, missing = log.missing()
				return roles
			}).WithTimeout(patience).Should(HaveLen(1))
			if len(missing[0]) != 3 {
				stop()
			}
			g.Expect(missing[0]).To(ConsistOf(
				"list, watch configmaps (the informer of ConfigMap.v1)",
				"create events.events.k8s.io (the recorder of events)",
				"update leases.coordination.k8s.io copier in system (the Lease system/copier)",
			))
		}).WithTimeout(patience).Should(Succeed())
		l.grant(ctx, "copier", roles[0])
		l.copied(ctx, "one")
		Expect(mgr.FlushEvents(ctx)).To(Succeed())
		roles, _ = log.missing()
		Expect(roles).To(HaveLen(1))
		report := mgr.Rights(ctx)
		Expect(report.Missing).To(BeEmpty())
		Expect(report.Error).To(BeEmpty())
	})

	It("that were used are enough for another run", func(ctx SpecContext) {
		l := newLimited(ctx)
		l.grant(ctx, "admin", "kind: ClusterRole\nmetadata: {name: everything}\nrules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]")
		mgr, _, stop := l.run(ctx, "admin")
		l.copied(ctx, "one")
		report := mgr.Rights(ctx)
		stop()
		Expect(report.Missing).To(BeEmpty())
		Expect(report.YAML()).To(Equal(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: copier
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [list, patch, watch]}
- {apiGroups: [''], resources: [configmaps/finalizers], verbs: [update]}
- {apiGroups: [''], resources: [secrets], verbs: [create, list, patch, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: copier
  namespace: system
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [copier], verbs: [get, update, watch]}
`))
		l.grant(ctx, "fresh", report.YAML())
		mgr, _, _ = l.run(ctx, "fresh")
		l.copied(ctx, "two")
		Eventually(func() any { return mgr.Rights(ctx).Missing }).WithTimeout(patience).Should(BeEmpty())
	})
})
