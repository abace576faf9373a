// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package election_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/source"
)

// standby is a replica of a program that counts its Reconciles in a ConfigMap, and campaigns for a
// Lease.
type standby struct {
	elector *leaderelection.Elector
	client  *client.Client
	cache   *cache.Cache
	maps    *cache.Handle[*corev1.ConfigMap]
	control *controller.Controller[types.NamespacedName]
	other   string // a namespace
	stop    context.CancelFunc
	ended   chan error

	led   chan time.Time     // a term begins
	seen  chan seen          // a Reconcile has read, and then written
	taken chan hook.Takeover // as told
}

// seen is what a Reconcile read, and wrote.
type seen struct {
	at            time.Time
	read, written string // versions
	count         int
}

// newStandby returns a standby in the namespace of a Lease. After each write in that namespace, it
// writes without a label in another one.
func newStandby(ctx context.Context, cfg *rest.Config, namespace, identity string, scope cache.Scope, other string) *standby {
	GinkgoHelper()
	s := &standby{other: other, led: make(chan time.Time, 1), seen: make(chan seen, 10), taken: make(chan hook.Takeover, 1), ended: make(chan error, 1)}
	var err error
	s.client, err = client.New(cfg, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	s.cache = cache.New(s.client, cache.Options{})
	s.elector, err = leaderelection.New(s.client.Config(), leaderelection.Options{Lease: "operator", Namespace: namespace, Identity: identity})
	Expect(err).NotTo(HaveOccurred())
	s.maps = cache.ForScope[*corev1.ConfigMap](s.cache, scope)
	s.control = controller.New("count", controller.Func[types.NamespacedName](s.reconcile), controller.Options{Hook: hook.On(func(e *hook.Takeover) { s.taken <- *e })})
	s.control.Watch(source.Kind(s.maps, handler.Self(), handler.Where(func(old, _ *corev1.ConfigMap) bool { return old == nil })))
	ctx, s.stop = context.WithCancel(logr.NewContext(ctx, logr.Discard()))
	var running sync.WaitGroup
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	running.Go(func() { _ = s.cache.Run(alive) })
	running.Go(func() { _ = s.control.Warm(alive) })
	go func() {
		defer s.client.Close()
		<-s.control.Synced()
		err := s.elector.Run(ctx, func(take, work context.Context) error {
			s.led <- time.Now()
			return s.control.Lead(take, work)
		})
		end()
		running.Wait()
		s.ended <- err
	}()
	return s
}

func (s *standby) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m, err := s.maps.Get(ctx, key)
	if err != nil || m.Name != "count" {
		return controller.Result{}, err
	}
	was := seen{at: time.Now(), read: m.ResourceVersion}
	was.count, _ = strconv.Atoi(m.Data["count"])
	m.Data = map[string]string{"count": strconv.Itoa(was.count + 1)}
	if m, err = client.For[*corev1.ConfigMap](s.client).Update(ctx, m); err == nil {
		was.written = m.ResourceVersion
	}
	if err == nil {
		_, err = client.For[*corev1.ConfigMap](s.client).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.other, GenerateName: "aside-"}})
	}
	s.seen <- was
	return controller.Result{}, err
}

var _ = Describe("A standby that takes over", func() {
	for _, t := range []struct {
		what  string
		lag   time.Duration
		scope cache.Scope
		aside bool // the last write is outside of the namespace
	}{
		{"of a namespace", 500 * time.Millisecond, cache.Scope{}, false},
		{"of a selection, without the last write", time.Second, cache.Scope{Labels: labels.SelectorFromSet(labels.Set{"counts": "yes"})}, false},
		{"of two namespaces, with the last write in the other one", 2 * time.Second, cache.Scope{}, true},
	} {
		lag := t.lag
		It(fmt.Sprintf("sees what the leader before has written, although the watch %s is %s late (L9)", t.what, lag), func(ctx SpecContext) {
			r := newRace(ctx)
			scope, other := t.scope, r.namespace
			scope.Namespaces = cache.NewSet(r.namespace)
			if t.aside {
				var err error
				other, err = cluster.Namespace(ctx, "other-")
				Expect(err).NotTo(HaveOccurred())
				scope.Namespaces = cache.NewSet(r.namespace, other)
			}
			proxy, err := fault.Start(ctx, cluster.Config(), fault.Options{})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(proxy.Stop)
			_, err = r.direct.CoreV1().ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "count", Labels: map[string]string{"counts": "yes"}}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())

			mine, err := proxy.Config()
			Expect(err).NotTo(HaveOccurred())
			a := newStandby(ctx, mine, r.namespace, "a", scope, other)
			var last seen
			Eventually(ctx, a.seen).Should(Receive(&last))
			theirs, err := proxy.Config()
			Expect(err).NotTo(HaveOccurred())
			b := newStandby(ctx, theirs, r.namespace, "b", scope, other)
			Eventually(ctx, b.control.Synced()).Should(BeClosed())
			Eventually(ctx, func() int {
				return len(proxy.Requests(fault.Match{Config: theirs, Verbs: []string{"watch"}, Resources: []string{"leases"}}))
			}).Should(BeNumerically(">", 0))

			proxy.Add(fault.Rule{Match: fault.Match{Config: theirs, Verbs: []string{"watch"}, Resources: []string{"configmaps"}}, Lag: lag})
			a.control.Requeue(types.NamespacedName{Namespace: r.namespace, Name: "count"})
			Eventually(ctx, a.seen).Should(Receive(&last))
			stored, err := r.direct.CoreV1().ConfigMaps(r.namespace).Get(ctx, "count", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			leases, err := r.direct.CoordinationV1().Leases(r.namespace).Watch(ctx, metav1.ListOptions{})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(leases.Stop)
			a.stop()
			var err2 error
			Eventually(ctx, a.ended).Should(Receive(&err2))
			Expect(err2).NotTo(HaveOccurred())
			released := time.Now()

			var led time.Time
			var first seen
			var taken hook.Takeover
			Eventually(ctx, b.led).Should(Receive(&led))
			Eventually(ctx, b.seen).Should(Receive(&first))
			Expect(first.read).To(Equal(last.written), "the first Reconcile of the new term has read what was before")
			Expect(first.count).To(Equal(2))
			Expect(b.taken).To(Receive(&taken))
			Expect(taken.Expired).To(BeFalse())
			Expect(taken.Doubts).NotTo(HaveOccurred())
			Expect(taken.Writes).To(Equal(1))
			AddReportEntry("after the old leader had stopped", fmt.Sprintf("leads: %s, waited %s, first Reconcile: %s", led.Sub(released).Round(time.Millisecond),
				taken.Took.Round(time.Millisecond), first.at.Sub(released).Round(time.Millisecond)), ReportEntryVisibilityAlways)
			lease, err := r.direct.CoordinationV1().Leases(r.namespace).Get(ctx, "operator", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(lease.Annotations).NotTo(HaveKey(leaderelection.WrittenAnnotation))
			var stamp string
			for stamp == "" {
				var e watch.Event
				Eventually(ctx, leases.ResultChan()).Should(Receive(&e))
				stamp = e.Object.(*coordinationv1.Lease).Annotations[leaderelection.WrittenAnnotation]
			}
			for _, clear := range []string{"count", r.namespace, string(stored.UID)} {
				Expect(stamp).NotTo(ContainSubstring(clear))
			}
			AddReportEntry("the annotation of the release", stamp, ReportEntryVisibilityAlways)
			b.stop()
			Eventually(ctx, b.ended).Should(Receive(&err2))
			Expect(err2).NotTo(HaveOccurred())
		}, SpecTimeout(patience))
	}
})
