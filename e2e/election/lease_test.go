// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"

	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// troubles are the errors that an elector reports, and nil when they are over.
type troubles struct {
	*leaderelection.Elector
	told chan error
	led  chan struct{}
	log  *testkit.Buffer
	stop context.CancelFunc
	end  chan error
}

func newTroubles(ctx context.Context, cfg *rest.Config, namespace string) *troubles {
	GinkgoHelper()
	t := &troubles{told: make(chan error, 100), led: make(chan struct{}, 1), log: &testkit.Buffer{}, end: make(chan error, 1)}
	var err error
	t.Elector, err = leaderelection.New(cfg, leaderelection.Options{
		Lease: "operator", Namespace: namespace, LeaseDuration: 3 * time.Second,
		Hook: hook.On(func(e *hook.LeaseTrouble) { t.told <- e.Err }),
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, t.stop = context.WithCancel(logr.NewContextWithSlogLogger(ctx, slog.New(slog.NewTextHandler(t.log, nil))))
	go func() {
		t.end <- t.Run(ctx, func(take, _ context.Context) error {
			close(t.led)
			<-take.Done()
			return nil
		})
	}()
	return t
}

// until waits until the elector has reported an error and still tries.
func (t *troubles) says(ctx context.Context, want string) {
	GinkgoHelper()
	var err error
	Eventually(ctx, t.told).Should(Receive(&err))
	Expect(err).To(MatchError(want))
	Expect(strings.Count(t.log.String(), "level=WARN")).To(Equal(1), t.log.String())
	Consistently(ctx, t.told, "1500ms").ShouldNot(Receive()) // several tries
}

// recovers waits until the elector leads, and stops it.
func (t *troubles) recovers(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, t.led).Should(BeClosed())
	t.stop()
	Eventually(ctx, t.end).Should(Receive(BeNil()))
}

// hosted is a party with client-go's elector and an observed lock.
type hosted struct {
	*leaderelection.Observed
	theirs
}

func (r *race) hosted(ctx context.Context, user string) hosted {
	GinkgoHelper()
	o := r.theirs(ctx, user).(theirs)
	observed, err := leaderelection.Observe(o.lock, o.lock.Client, leaderelection.ObserveOptions{})
	Expect(err).NotTo(HaveOccurred())
	o.lock.Client = observed
	return hosted{observed, o}
}

// campaign returns when both the elector and the leader's work have ended.
func (h hosted) campaign(ctx context.Context, leads func()) {
	defer GinkgoRecover()
	defer h.http.CloseIdleConnections()
	led := make(chan error, 1)
	clientgo.RunOrDie(logr.NewContext(ctx, logr.Discard()), clientgo.LeaderElectionConfig{
		Lock: h.lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				led <- h.Lead(ctx, func(take, work context.Context) error {
					if err := term.FromContext(work).Trusted(); err != nil || term.FromContext(work).Token().Lease == "" {
						return fmt.Errorf("the term %s: %w", term.FromContext(work).Token(), err)
					}
					leads()
					<-take.Done()
					return nil
				})
			},
			OnStoppedLeading: func() {},
		},
	})
	Expect(<-led).To(Succeed())
}

// String returns the party's name.
func (hosted) String() string { return "a host" }

// grant gives a user a verb on all Leases of the namespace, and waits until the API server applies
// it.
func (r *race) grant(ctx context.Context, user, role string, verbs []string) {
	GinkgoHelper()
	name := metav1.ObjectMeta{Namespace: r.namespace, Name: user + "-" + role}
	_, err := r.direct.RbacV1().Roles(r.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = r.direct.RbacV1().RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: name.Name},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, verb := range verbs {
		allowed(ctx, r.direct, user, authorizationv1.ResourceAttributes{Namespace: r.namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: verb})
	}
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

var _ = Describe("An elector that may not use its Lease", func() {
	const rest = "grant it, by a Role and a RoleBinding there, to create leases, and to get, update and watch the one with the resourceName operator"

	It("reports the user and the missing permission once, in one sentence, and recovers when it is granted", func(ctx SpecContext) {
		r := newRace(ctx)
		for _, verb := range []string{"get", "create", "update"} {
			By(verb)
			user := "eve-" + verb
			cfg := cluster.Config()
			cfg.Impersonate.UserName = user
			switch verb {
			case "create":
				r.grant(ctx, user, "reader", []string{"get", "update", "watch"})
			case "update":
				r.grant(ctx, user, "reader", []string{"create"})
				r.grant(ctx, user, "getter", []string{"get", "watch"})
			}
			t := newTroubles(ctx, cfg, r.namespace)
			t.says(ctx, fmt.Sprintf("the user %q may not %s leases (coordination.k8s.io) in the namespace %s, here operator; ", user, verb, r.namespace)+rest)
			r.grant(ctx, user, "all", []string{"create", "get", "update", "watch"})
			t.recovers(ctx)
			if verb == "get" { // the next one has to make it
				Expect(r.direct.CoordinationV1().Leases(r.namespace).Delete(ctx, "operator", metav1.DeleteOptions{})).To(Succeed())
			}
		}
	}, SpecTimeout(patience))

	It("reports that the namespace is missing, and recovers when it exists", func(ctx SpecContext) {
		r := newRace(ctx)
		name := r.namespace + "-later"
		t := newTroubles(ctx, cluster.Config(), name)
		t.says(ctx, "the namespace "+name+" of the Lease operator does not exist; create it")
		_, err := r.direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		t.recovers(ctx)
	}, SpecTimeout(patience))
})

var _ = Describe("A host's own elector", func() {
	It("drives our terms, and hands over to our elector, to client-go's and back (L3, L7)", func(ctx SpecContext) {
		r := newRace(ctx)
		host, mine, plain := r.hosted(ctx, "a"), r.ours(ctx, "b", "get", "update", "watch"), r.theirs(ctx, "c")
		for _, way := range [][]party{{host, mine}, {mine, host}, {host, plain}, {plain, host}} {
			AddReportEntry("from the release to the next leader", fmt.Sprintf("%s to %s: %s", way[0], way[1],
				handOver(ctx, way[0], way[1]).Round(time.Millisecond/10)), ReportEntryVisibilityAlways)
		}
		lease, err := r.direct.CoordinationV1().Leases(r.namespace).Get(ctx, "operator", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(*lease.Spec.HolderIdentity).To(BeEmpty())
	}, SpecTimeout(patience))
})
