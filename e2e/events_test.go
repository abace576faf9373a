// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// recorded is a world with events about its objects.
type recorded struct {
	*world

	log bytes.Buffer // of one goroutine at a time

	mu      sync.Mutex // guards dropped
	dropped map[string]int
}

func newRecorded(ctx context.Context) *recorded {
	GinkgoHelper()
	return &recorded{world: newWorld(ctx, cluster.Config()), dropped: map[string]int{}}
}

// hooks count what is dropped.
func (w *recorded) hooks() *hook.Hook {
	return hook.On(func(e *hook.EventDropped) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dropped[e.Why] += e.Events
	})
}

// record flushes what say records, with a recorder of its own, and closes it.
func (w *recorded) record(ctx context.Context, c *client.Client, say func(ctx context.Context, r *events.Recorder)) {
	GinkgoHelper()
	ctx = logr.NewContextWithSlogLogger(ctx, slog.New(slog.NewTextHandler(&w.log, nil)))
	r := events.New(c, events.Options{Name: "scenario", Hook: w.hooks()})
	say(ctx, r)
	Expect(r.Close(ctx)).To(Succeed())
}

func (w *recorded) create(ctx context.Context, name string) *corev1.ConfigMap {
	GinkgoHelper()
	obj, err := w.direct.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return obj
}

// described returns the Events that kubectl describe finds, and the number of calls that they
// count.
func (w *recorded) described(ctx context.Context, obj runtime.Object) (found []corev1.Event, calls int) {
	GinkgoHelper()
	namespace := w.namespace
	if obj.(metav1.Object).GetNamespace() == "" {
		namespace = metav1.NamespaceAll
	}
	list, err := w.direct.CoreV1().Events(namespace).SearchWithContext(ctx, scheme.Scheme, obj)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range list.Items {
		if e.Series == nil {
			calls++
		} else {
			calls += int(e.Series.Count)
		}
	}
	return list.Items, calls
}

func (w *recorded) requests() (n int) {
	for kind, times := range w.proxy.Counts() {
		if kind.Group == eventsv1.GroupName {
			n += times
		}
	}
	return n
}

var _ = Describe("Events", func() {
	It("N1, N3: of 10,000 calls take at most 30 requests, and are stored before the Lease is released", func(ctx SpecContext) {
		w := newRecorded(ctx)
		obj := w.create(ctx, "failing")
		sent := make(chan struct{}, 100)
		watched := hook.Join(w.hooks(), hook.On(func(*hook.EventSent) { sent <- struct{}{} }))
		m := manager.New(w.client.Config(), manager.Options{
			Name: "Scenario operator", RequireTerm: true, Logger: slog.New(slog.DiscardHandler), Hook: watched,
			LeaderElection: &leaderelection.Options{Lease: "events", Namespace: w.namespace},
		})
		run, stop := context.WithCancel(ctx)
		defer stop()
		rec := events.For(m, events.Options{})
		m.AddLeaderOnly("failing", func(ctx context.Context) error {
			for i := range 10_000 {
				if i == 9_000 { // the others are recorded while the manager stops
					stop()
				}
				now := obj.DeepCopy()
				now.ResourceVersion = strconv.Itoa(i)
				rec.Eventf(ctx, now, events.Warning, "ApplyFailed", "Apply", "attempt %d failed", i/10)
				if i%100 == 0 && i < 2000 {
					<-sent // until the limit is reached
				}
			}
			return nil
		})
		Expect(m.Run(run)).To(Succeed())
		AddReportEntry(fmt.Sprintf("%d requests", w.requests()))
		Expect(w.requests()).To(And(BeNumerically(">", 20), BeNumerically("<=", 30)))
		found, calls := w.described(ctx, obj)
		Expect(calls).To(Equal(10_000))
		Expect(w.dropped).To(BeEmpty())
		Expect(found).To(ContainElement(HaveField("Message", "attempt 999 failed")))
		Expect(found[0].ReportingController).To(Equal("Scenario-operator"))

		var last time.Time
		for _, r := range w.proxy.Requests(fault.Match{Groups: []string{eventsv1.GroupName}}) {
			last = r.Ended
		}
		leases := w.proxy.Requests(fault.Match{Resources: []string{"leases"}, Verbs: []string{"update", "patch"}})
		Expect(leases[len(leases)-1].Started).To(BeTemporally(">", last))
		lease, err := w.direct.CoordinationV1().Leases(w.namespace).Get(ctx, "events", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(lease.Spec.HolderIdentity).To(HaveValue(BeEmpty()))
	}, NodeTimeout(patience))

	It("name an object that keeps failing, once", func(ctx SpecContext) {
		w := newRecorded(ctx)
		obj := w.create(ctx, "failing")
		m := manager.New(w.client.Config(), manager.Options{
			Name: "scenario", Logger: slog.New(slog.DiscardHandler), Hook: w.hooks(),
			Cache: cache.Options{Namespaces: cache.NewSet(w.namespace)},
		})
		maps := cache.For[*corev1.ConfigMap](m.Cache())
		run, stop := context.WithCancel(ctx)
		defer stop()
		attempts := 0
		r := controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
			if attempts++; attempts == 10 { // after 2.5 s
				stop()
			}
			return controller.Result{}, fmt.Errorf("attempt %d failed", attempts)
		})
		c := controller.New("failing", events.Failing(r, time.Second, maps, events.For(m, events.Options{})), controller.Options{})
		named := handler.Where(func(_, after *corev1.ConfigMap) bool { return after != nil && after.Name == obj.Name })
		c.Watch(source.Kind(maps, handler.Self(), named))
		m.Add(c)
		Expect(m.Run(run)).To(Succeed())
		found, calls := w.described(ctx, obj)
		Expect(calls).To(Equal(1))
		Expect(found[0].Reason).To(Equal(events.ReasonFailing))
		Expect(found[0].Message).To(MatchRegexp(`^9 Reconciles in a row have failed, for 1s; the last error: attempt 9 failed$`))
		Expect(w.dropped).To(BeEmpty())
	}, NodeTimeout(patience))

	It("N2: continue a series after a restart, and in an Event whose answer was lost", func(ctx SpecContext) {
		w := newRecorded(ctx)
		obj := w.create(ctx, "restarted")
		for range 4 {
			w.record(ctx, w.client, func(ctx context.Context, r *events.Recorder) {
				w.proxy.Add(fault.Rule{Match: fault.Match{Groups: []string{eventsv1.GroupName}}, Times: 1, Lose: true})
				for range 3 {
					r.Eventf(ctx, obj, events.Normal, "Restarted", "Restart", "restarted")
					Expect(r.Flush(ctx)).To(Succeed())
					r.Eventf(ctx, obj, events.Normal, "Restarted", "Restart", "another text")
					Expect(r.Flush(ctx)).To(Succeed())
				}
			})
		}
		found, calls := w.described(ctx, obj)
		Expect(found).To(HaveLen(2)) // the API server does not let a note change
		Expect(calls).To(Equal(24))
		Expect(found[0].Series.Count).To(BeEquivalentTo(12))
	}, NodeTimeout(patience))

	It("are valid for every object, and for a note of any length", func(ctx SpecContext) {
		w := newRecorded(ctx)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:" + w.namespace}}
		role, err := w.direct.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(w.direct.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})).To(Succeed())
		})
		long, gone := w.create(ctx, strings.Repeat("x", 253)), w.create(ctx, "gone")
		Expect(w.direct.CoreV1().ConfigMaps(w.namespace).Delete(ctx, gone.Name, metav1.DeleteOptions{})).To(Succeed())
		w.record(ctx, w.client, func(ctx context.Context, r *events.Recorder) {
			r.Eventf(ctx, role, events.Normal, strings.Repeat("R", 128), strings.Repeat("A", 128), "of a cluster-scoped object")
			r.Eventf(ctx, long, events.Warning, "Failed", "", "%s", strings.Repeat("€", 1000))
			r.Eventf(ctx, long, events.Warning, "Empty", "", "")
			r.Eventf(ctx, gone, events.Normal, "Deleted", "Delete", "deleted \xff")
			r.Eventf(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "no-uid"}}, events.Normal, "Deleted", "Delete", "deleted")
		})
		Expect(w.dropped).To(BeEmpty())
		for obj, want := range map[runtime.Object]int{role: 1, long: 2, gone: 1} {
			_, calls := w.described(ctx, obj)
			Expect(calls).To(Equal(want))
		}
	}, NodeTimeout(patience))

	It("without the right to write them are dropped, and the log names the rule once", func(ctx SpecContext) {
		w := newRecorded(ctx)
		cfg, err := cluster.ConfigFor("no-events")
		Expect(err).NotTo(HaveOccurred())
		for _, verbs := range [][]string{nil, {"create", "patch"}} {
			for _, verb := range verbs {
				grant(ctx, w, verb)
			}
			w.record(ctx, newClient(cfg), func(ctx context.Context, r *events.Recorder) {
				for _, name := range []string{"a", "b"} {
					obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
					r.Eventf(ctx, obj, events.Normal, "Created", "Create", "created")
				}
			})
		}
		Expect(w.dropped).To(Equal(map[string]int{"forbidden": 2}))
		Expect(strings.Count(w.log.String(), "verbs [create, patch]")).To(Equal(1), w.log.String())
		list, err := w.direct.EventsV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.kind=ConfigMap"})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(HaveLen(2))
	}, NodeTimeout(patience))

	It("in a namespace that is gone or terminating are dropped", func(ctx SpecContext) {
		w := newRecorded(ctx)
		held, err := w.direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "held-"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.direct.CoreV1().Namespaces().Delete(ctx, held.Name, metav1.DeleteOptions{})).To(Succeed())
		w.record(ctx, w.client, func(ctx context.Context, r *events.Recorder) {
			for _, namespace := range []string{held.Name, "missing"} {
				obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
				r.Eventf(ctx, obj, events.Normal, "Created", "Create", "created")
			}
		})
		Expect(w.dropped).To(Equal(map[string]int{"the namespace is gone or terminating": 2}))
		Expect(w.log.String()).To(BeEmpty())
	}, NodeTimeout(patience))
})

func newClient(cfg *rest.Config) *client.Client {
	GinkgoHelper()
	c, err := client.New(cfg, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Close)
	return c
}

// grant gives the user no-events one right on events.
func grant(ctx context.Context, w *recorded, verb string) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: "events-" + verb}
	_, err := w.direct.RbacV1().Roles(w.namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{eventsv1.GroupName}, Resources: []string{"events"}, Verbs: []string{verb}},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = w.direct.RbacV1().RoleBindings(w.namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "no-events"}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	allowed(ctx, w.direct, "no-events", authorizationv1.ResourceAttributes{Namespace: w.namespace, Group: eventsv1.GroupName, Resource: "events", Verb: verb})
}
