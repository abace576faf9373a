// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/leaderelection"
)

// retryPeriod is how often an elector renews and tries; the other times are the defaults.
const retryPeriod = time.Second

// party is an elector in a race, ours or client-go's.
type party interface {
	fmt.Stringer
	// campaign campaigns until ctx is done or the Lease is lost. It calls leads when it leads, and
	// has released the Lease when it returns.
	campaign(ctx context.Context, leads func())
}

// race is a Lease and its candidates.
type race struct {
	namespace string
	direct    kubernetes.Interface
}

// newRace returns a race. Its candidates may use only this Lease.
func newRace(ctx context.Context) *race {
	GinkgoHelper()
	r := &race{}
	admin := cluster.Config()
	h, err := rest.HTTPClientFor(admin)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	r.direct, err = kubernetes.NewForConfigAndClient(admin, h)
	Expect(err).NotTo(HaveOccurred())
	r.namespace, err = cluster.Namespace(ctx, "election-")
	Expect(err).NotTo(HaveOccurred())
	return r
}

// config returns the configuration of a user with the verbs on this Lease, and create.
func (r *race) config(ctx context.Context, user string, verbs ...string) *rest.Config {
	GinkgoHelper()
	name := metav1.ObjectMeta{Namespace: r.namespace, Name: user}
	_, err := r.direct.RbacV1().Roles(r.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"operator"}, Verbs: verbs},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = r.direct.RbacV1().RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	allowed(ctx, r.direct, user, authorizationv1.ResourceAttributes{Namespace: r.namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "create"})
	cfg := cluster.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	return cfg
}

// ours is a party with our elector.
type ours struct{ *leaderelection.Elector }

func (r *race) ours(ctx context.Context, user string, verbs ...string) party {
	GinkgoHelper()
	e, err := leaderelection.New(r.config(ctx, user, verbs...), leaderelection.Options{Lease: "operator", Namespace: r.namespace, Identity: user, RetryPeriod: retryPeriod})
	Expect(err).NotTo(HaveOccurred())
	return ours{e}
}

func (o ours) campaign(ctx context.Context, leads func()) {
	defer GinkgoRecover()
	Expect(o.Run(logr.NewContext(ctx, logr.Discard()), func(take, _ context.Context) error {
		leads()
		<-take.Done()
		return nil
	})).To(Succeed())
}

// String returns the party's name.
func (ours) String() string { return "setpoint" }

// theirs is a party with client-go's elector.
type theirs struct {
	lock *resourcelock.LeaseLock
	http interface{ CloseIdleConnections() }
}

func (r *race) theirs(ctx context.Context, user string) party {
	GinkgoHelper()
	cfg := r.config(ctx, user, "get", "update")
	cfg.Timeout = 5 * time.Second
	h, err := rest.HTTPClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	c, err := kubernetes.NewForConfigAndClient(cfg, h)
	Expect(err).NotTo(HaveOccurred())
	return theirs{&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "operator"}, Client: c.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: user},
	}, h}
}

func (o theirs) campaign(ctx context.Context, leads func()) {
	defer GinkgoRecover()
	defer o.http.CloseIdleConnections()
	clientgo.RunOrDie(logr.NewContext(ctx, logr.Discard()), clientgo.LeaderElectionConfig{
		Lock: o.lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: clientgo.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads() }, OnStoppedLeading: func() {}},
	})
}

// String returns the party's name.
func (theirs) String() string { return "client-go" }

// handOver lets one party lead and another wait, stops the first, and returns the time from its
// release until the other leads. Both have stopped then.
func handOver(ctx context.Context, from, to party) time.Duration {
	GinkgoHelper()
	began, led := make(chan time.Time, 1), make(chan time.Time, 1)
	var running sync.WaitGroup
	defer running.Wait()
	first, stopFirst := context.WithCancel(ctx)
	defer stopFirst()
	second, stopSecond := context.WithCancel(ctx)
	defer stopSecond()
	released := make(chan time.Time, 1)
	running.Go(func() {
		from.campaign(first, func() { began <- time.Now() })
		released <- time.Now()
	})
	Eventually(ctx, began).Should(Receive())
	running.Go(func() { to.campaign(second, func() { led <- time.Now() }) })
	// A renewal, and a try.
	Consistently(ctx, led, retryPeriod*6/5).ShouldNot(Receive(), "two lead at once")
	stopFirst()
	var gave, took time.Time
	Eventually(ctx, released).Should(Receive(&gave))
	Eventually(ctx, led).Should(Receive(&took))
	return took.Sub(gave) // negative if the other leads before the answer to the release has come
}

var _ = Describe("A Lease", func() {
	all := []string{"get", "update", "watch"}

	It("is handed over from one of our replicas to another within one event and one write (L6)", func(ctx SpecContext) {
		r := newRace(ctx)
		a, b := r.ours(ctx, "a", all...), r.ours(ctx, "b", all...)
		var took []string
		for range 3 {
			d := handOver(ctx, a, b)
			took = append(took, d.Round(time.Millisecond/10).String())
			Expect(d).To(BeNumerically("<", patience))
			a, b = b, a
		}
		AddReportEntry("from the release to the next lead()", strings.Join(took, " "), ReportEntryVisibilityAlways)
	}, SpecTimeout(patience))

	It("is handed over from client-go's elector to ours and back (L7)", func(ctx SpecContext) {
		r := newRace(ctx)
		mine, client := r.ours(ctx, "a", all...), r.theirs(ctx, "b")
		for _, way := range [][]party{{client, mine}, {mine, client}, {client, mine}} {
			AddReportEntry("from the release to the next leader", fmt.Sprintf("%s to %s: %s", way[0], way[1],
				handOver(ctx, way[0], way[1]).Round(time.Millisecond/10)), ReportEntryVisibilityAlways)
		}
		lease, err := r.direct.CoordinationV1().Leases(r.namespace).Get(ctx, "operator", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(*lease.Spec.LeaseTransitions).To(BeNumerically(">=", 5))
		Expect(*lease.Spec.HolderIdentity).To(BeEmpty())
	}, SpecTimeout(patience))

	It("is polled if the elector may not watch it (L6)", func(ctx SpecContext) {
		r := newRace(ctx)
		a, b := r.ours(ctx, "a", all...), r.ours(ctx, "b", slices.DeleteFunc(slices.Clone(all), func(v string) bool { return v == "watch" })...)
		AddReportEntry("from the release to the next lead(), polling", handOver(ctx, a, b).Round(time.Millisecond), ReportEntryVisibilityAlways)
	}, SpecTimeout(patience))
})
