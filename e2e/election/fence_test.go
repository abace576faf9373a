// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// holderAnnotation names the writer, for the policy in docs/leader-election-policy.yaml.
const holderAnnotation = "setpoint.dev/holder"

// writer is a leading replica, and its handle of the written object.
type writer struct {
	maps *client.Handle[*corev1.ConfigMap]
	work chan context.Context // of its term
	stop context.CancelFunc
	end  chan error
}

func newWriter(ctx context.Context, cfg *rest.Config, namespace, identity string) *writer {
	GinkgoHelper()
	c, err := client.New(cfg, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	e, err := leaderelection.New(cfg, leaderelection.Options{Lease: "operator", Namespace: namespace, Identity: identity, LeaseDuration: 3 * time.Second})
	Expect(err).NotTo(HaveOccurred())
	w := &writer{maps: client.For[*corev1.ConfigMap](c), work: make(chan context.Context, 1), end: make(chan error, 1)}
	ctx, w.stop = context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	go func() {
		defer c.Close()
		w.end <- e.Run(ctx, func(take, work context.Context) error {
			select {
			case w.work <- work:
			default: // a later term
			}
			<-take.Done()
			return nil
		})
	}()
	return w
}

// patch writes the object without a version, as an apply does.
func (w *writer) patch(ctx context.Context, key types.NamespacedName, by string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"data":{"by":%q}}`, holderAnnotation, term.FromContext(ctx).Token().Holder, by)
	_, err := w.maps.Patch(ctx, key, types.MergePatchType, []byte(patch))
	return err
}

// lateWrite delays a leader's write until another replica leads and has written the same object,
// and returns the API server's answer. The caller decides whether the write must be refused.
func lateWrite(ctx context.Context, user, namespace string, write func(context.Context, *writer, *corev1.ConfigMap) error) (code int, key types.NamespacedName) {
	GinkgoHelper()
	key = types.NamespacedName{Namespace: namespace, Name: "config"}
	cfg := cluster.Config()
	cfg.Impersonate.UserName = user
	proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Stop)
	mine, err := proxy.ConfigOf(cfg)
	Expect(err).NotTo(HaveOccurred())

	a := newWriter(ctx, mine, namespace, "a")
	var work context.Context
	Eventually(ctx, a.work).Should(Receive(&work))
	var m *corev1.ConfigMap
	Eventually(ctx, func() (err error) { // a policy needs a moment to know who leads
		m, err = a.maps.Create(work, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{holderAnnotation: term.FromContext(work).Token().Holder},
		}})
		return err
	}).Should(Succeed())

	held := proxy.Add(fault.Rule{Match: fault.Match{Config: mine, Resources: []string{"configmaps"}}, Hold: true, Deliver: true})
	late := make(chan error, 1)
	go func() { late <- write(work, a, m) }()
	Expect(held.WaitHeld(ctx, 1)).To(Succeed()) // it is on the wire
	proxy.Add(fault.Rule{Match: fault.Match{Config: mine, Resources: []string{"leases"}}, Cut: true})
	b := newWriter(ctx, cfg, namespace, "b")
	var theirs context.Context
	Eventually(ctx, b.work).Should(Receive(&theirs))
	Expect(work.Err()).To(HaveOccurred())
	Expect(term.FromContext(work).Trusted()).NotTo(Succeed())
	Eventually(ctx, late).Should(Receive(HaveOccurred())) // a does not wait for the answer
	Expect(a.patch(context.WithoutCancel(work), key, "a, too late")).To(MatchError(term.ErrFenced))
	// From now on the policy knows.
	Eventually(ctx, func() error { return b.patch(theirs, key, "b") }).Should(Succeed())

	held.Remove()
	Expect(held.WaitEnded(ctx, 1)).To(Succeed())
	requests := proxy.Requests(fault.Match{Config: mine, Resources: []string{"configmaps"}})
	code = requests[len(requests)-1].Status
	for _, w := range []*writer{a, b} {
		w.stop()
		Eventually(ctx, w.end).Should(Receive(BeNil()))
	}
	return code, key
}

// allow gives a user an operator's permissions in a namespace.
func (r *race) allow(ctx context.Context, user string) {
	GinkgoHelper()
	_, err := r.direct.RbacV1().RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	allowed(ctx, r.direct, user, authorizationv1.ResourceAttributes{Namespace: r.namespace, Resource: "configmaps", Verb: "patch"})
}

// by returns the last writer of the object, "" if it is gone.
func (r *race) by(ctx context.Context, key types.NamespacedName) string {
	GinkgoHelper()
	m, err := r.direct.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	Expect(err).NotTo(HaveOccurred())
	return m.Data["by"]
}

var _ = Describe("A write that is in flight when the trust ends, and arrives when another replica leads", func() {
	patch := func(work context.Context, a *writer, m *corev1.ConfigMap) error {
		return a.patch(work, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, "a")
	}

	It("is stored if only the fence protects the object: the limit of any fence in a client (L2)", func(ctx SpecContext) {
		r := newRace(ctx)
		r.allow(ctx, "operator")
		code, key := lateWrite(ctx, "operator", r.namespace, patch)
		Expect(code).To(Equal(http.StatusOK))
		Expect(r.by(ctx, key)).To(Equal("a"))
	}, SpecTimeout(patience))

	DescribeTable("is refused if it has the version that it read", func(ctx SpecContext, write func(context.Context, *writer, *corev1.ConfigMap) error) {
		r := newRace(ctx)
		r.allow(ctx, "operator")
		code, key := lateWrite(ctx, "operator", r.namespace, write)
		Expect(code).To(Equal(http.StatusConflict))
		Expect(r.by(ctx, key)).To(Equal("b"))
	},
		Entry("an update with its resourceVersion", func(work context.Context, a *writer, m *corev1.ConfigMap) error {
			m = m.DeepCopy()
			m.Data = map[string]string{"by": "a"}
			_, err := a.maps.Update(work, m)
			return err
		}, SpecTimeout(patience)),
		Entry("a patch with metadata.resourceVersion", func(work context.Context, a *writer, m *corev1.ConfigMap) error {
			patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"data":{"by":"a"}}`, m.ResourceVersion)
			_, err := a.maps.Patch(work, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, types.MergePatchType, []byte(patch))
			return err
		}, SpecTimeout(patience)),
		Entry("a delete with preconditions", func(work context.Context, a *writer, m *corev1.ConfigMap) error {
			return a.maps.Delete(work, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, client.Preconditions(m.UID, m.ResourceVersion))
		}, SpecTimeout(patience)),
	)

	It("is refused by a ValidatingAdmissionPolicy that compares the writer with the Lease's holder", func(ctx SpecContext) {
		const user = "system:serviceaccount:operator-system:operator" // as in the policy
		r := newRace(ctx)
		r.namespace = "operator-system"
		_, err := r.direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		r.allow(ctx, user)
		Expect(cluster.Apply(ctx, "../../docs/leader-election-policy.yaml")).To(Succeed())
		cfg := cluster.Config()
		cfg.Impersonate.UserName = user
		c, err := client.New(cfg, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		defer c.Close()
		Eventually(ctx, func() error { // until the API server knows the policy
			_, err := client.For[*corev1.ConfigMap](c).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "nobody"}}, client.DryRun())
			return err
		}).Should(MatchError(ContainSubstring("operator-only-the-leader-writes")))

		code, key := lateWrite(ctx, user, r.namespace, patch)
		Expect(code).To(Equal(http.StatusForbidden))
		Expect(r.by(ctx, key)).To(Equal("b"))
		_, err = r.direct.CoreV1().ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred(), "others than the operator are not concerned")
	}, SpecTimeout(patience))
})
