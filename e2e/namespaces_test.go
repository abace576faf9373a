// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// confined is an operator with a Role in each of its namespaces, and no ClusterRole. It keeps a
// Secret for each ConfigMap.
type confined struct {
	*world

	namespaces []string
	manager    *manager.Manager
	maps       *cache.Handle[*corev1.ConfigMap]
	secrets    *cache.Handle[*corev1.Secret]
}

// newConfined returns an operator that has rights in n namespaces.
func newConfined(ctx context.Context, n int) *confined {
	GinkgoHelper()
	const user = "confined-operator"
	cfg, err := cluster.ConfigFor(user)
	Expect(err).NotTo(HaveOccurred())
	o := &confined{world: newWorld(ctx, cfg)}
	for range n {
		namespace, err := cluster.Namespace(ctx, "confined-")
		Expect(err).NotTo(HaveOccurred())
		o.namespaces = append(o.namespaces, namespace)
		o.grant(ctx, namespace, user)
	}
	slices.Sort(o.namespaces)
	through, err := o.proxy.ConfigOf(cfg)
	Expect(err).NotTo(HaveOccurred())
	o.manager = manager.New(through, manager.Options{
		Name: "confined", Logger: slog.New(slog.DiscardHandler),
		Cache:          cache.Options{Namespaces: cache.ParseNamespaces(strings.Join(o.namespaces, ","))},
		LeaderElection: &leaderelection.Options{Lease: "confined", Namespace: o.namespaces[0]},
	})
	o.maps, o.secrets = cache.For[*corev1.ConfigMap](o.manager.Cache()), cache.For[*corev1.Secret](o.manager.Cache())
	c := controller.New("confined", controller.Func[types.NamespacedName](o.reconcile), controller.Options{})
	c.Watch(source.Kind(o.maps, handler.Self()))
	c.Watch(source.Kind(o.secrets, handler.Self()))
	o.manager.Add(c)
	return o
}

// grant gives a user a Role in a namespace.
func (o *confined) grant(ctx context.Context, namespace, user string) {
	GinkgoHelper()
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	_, err := o.direct.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}, Verbs: all},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: all},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = o.direct.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	allowed(ctx, o.direct, user, authorizationv1.ResourceAttributes{Namespace: namespace, Resource: "configmaps", Verb: "list"})
}

// allowed waits until a user has a right: the API server's authorizer learns of a Role and its
// RoleBinding a moment after they are written.
func allowed(ctx context.Context, direct kubernetes.Interface, user string, right authorizationv1.ResourceAttributes) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (bool, error) {
		review, err := direct.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &right},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	}).Should(BeTrue(), "%s may %v", user, right)
}

func (o *confined) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := o.maps.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	} else if err != nil {
		return controller.Result{}, err
	}
	if _, err := o.secrets.Get(ctx, key); !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	_, err = client.For[*corev1.Secret](o.manager.Client()).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}})
	return controller.Result{}, err
}

// make creates a ConfigMap, directly.
func (o *confined) make(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	_, err := o.direct.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("An operator with a Role in its namespaces only", func() {
	for n := range 2 {
		It(fmt.Sprintf("reconciles in these and requests nothing outside: %d", n+1), func(ctx SpecContext) {
			o := newConfined(ctx, n+1)
			for _, namespace := range append(slices.Clone(o.namespaces), o.namespace) {
				o.make(ctx, namespace, "early")
			}
			// The answer of one create is lost, so that the controller looks for its Secret.
			lost := o.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"secrets"}}, Lose: true, Times: 1})
			var listed []*corev1.ConfigMap
			if n == 0 {
				informers := factory.Of(o.manager)
				maps := informers.Core().V1().ConfigMaps().Lister()
				o.manager.AddEverywhere("component", func(ctx context.Context) error {
					err := informers.WaitForCacheSyncWithContext(ctx).AsError()
					if err == nil {
						listed, err = maps.List(labels.Everything())
					}
					return err
				})
			}
			o.running.Go(func() { Expect(o.manager.Run(o.ctx)).To(Succeed()) })
			Expect(o.manager.Idle(ctx)).To(Succeed())
			for _, namespace := range append(slices.Clone(o.namespaces), o.namespace) {
				o.make(ctx, namespace, "late")
			}
			Expect(o.maps.CatchUp(ctx)).To(Succeed())
			Expect(o.manager.Idle(ctx)).To(Succeed())
			for _, namespace := range append(slices.Clone(o.namespaces), o.namespace) {
				for _, name := range []string{"early", "late"} {
					_, err := o.direct.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
					Expect(err == nil).To(Equal(namespace != o.namespace), "%s/%s: %v", namespace, name, err)
				}
			}
			Expect(lost.Hits()).To(Equal(1))
			o.stop()
			o.running.Wait()
			if n == 0 {
				Expect(len(listed)).To(BeNumerically(">", 0))
				for _, m := range listed {
					Expect(m.Namespace).To(Equal(o.namespaces[0]))
				}
			}
			o.onlyInside()
		})
	}

	It("names the missing right for a cluster-scoped kind, and goes on with the others", func(ctx SpecContext) {
		o := newConfined(ctx, 1)
		namespaces := cache.For[*corev1.Namespace](o.manager.Cache())
		o.make(ctx, o.namespaces[0], "early")
		o.running.Go(func() { Expect(o.manager.Run(o.ctx)).To(Succeed()) })
		Expect(o.manager.Idle(ctx)).To(Succeed())
		Expect(namespaces.Settled(ctx)).To(Succeed())
		Expect(namespaces.Stale()).To(MatchError(ContainSubstring(`resource "namespaces" in API group "" at the cluster scope`)))
		Expect(o.maps.Stale()).To(Succeed())
	})
})

// onlyInside checks that every request named one of the operator's namespaces, or no resource, and
// that none was forbidden.
func (o *confined) onlyInside() {
	GinkgoHelper()
	requests := o.proxy.Requests(fault.Match{})
	resources := map[string]int{}
	for _, r := range requests {
		resources[r.Verb+" "+r.Resource]++
		switch r.Resource {
		case "selfsubjectaccessreviews": // everyone may
		case "":
			Expect(r.Path).To(Or(HavePrefix("/api"), Equal("/version")), "discovery")
		default:
			Expect(o.namespaces).To(ContainElement(r.Namespace), "%s %s", r.Verb, r.Path)
		}
		Expect(r.Status).NotTo(Equal(403), "%s %s", r.Verb, r.Path)
	}
	Expect(resources).To(HaveKey("watch configmaps"))
	Expect(resources).To(HaveKey("list configmaps"), "CatchUp and Idle")
	Expect(resources).To(HaveKey("list secrets"), "Idle, and the search for the Secret")
	Expect(resources).To(HaveKey("create secrets"))
}
