// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// rangeSuffix ends the names of the namespaces that rangers reconcile. Their first letters differ,
// so that they have different slots.
const rangeSuffix = "-ranges"

// ranger is a replica of a group whose slots are ranges of namespaces. It copies the text "want" of
// each ConfigMap to "seen".
type ranger struct {
	name    string
	fleet   *rangers
	manager *manager.Manager
	maps    *cache.Handle[*corev1.ConfigMap]
	writes  *client.Handle[*corev1.ConfigMap]
	tap     *rangeTap
	stop    context.CancelFunc
	ended   chan struct{}
}

// rangeTap keeps the requests for ConfigMaps and what the API server sends, before the cache
// filters it.
type rangeTap struct {
	wiretap

	slots  func() []uint8
	garble bool           // makes each shardSelector unreadable
	asked  []rangeRequest // guarded by mu
}

// rangeRequest is a list or a watch.
type rangeRequest struct {
	watch    bool
	selector string
	slots    []uint8 // of the cache, when the request was made
	status   int
}

func (w *rangeTap) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/configmaps") {
		return w.next.RoundTrip(r)
	}
	query := r.URL.Query()
	if query.Has("fieldSelector") { // it compares one object after a watch has ended
		return w.next.RoundTrip(r)
	}
	one := rangeRequest{watch: query.Has("watch"), selector: query.Get("shardSelector"), slots: w.slots()}
	if w.garble && one.selector != "" {
		r = r.Clone(r.Context())
		query.Set("shardSelector", "shardRange(object.metadata.name, '0', '1')")
		r.URL.RawQuery = query.Encode()
	}
	resp, err := w.next.RoundTrip(r)
	if err == nil {
		one.status = resp.StatusCode
		w.mu.Lock()
		w.asked = append(w.asked, one)
		w.mu.Unlock()
		resp.Body = tapped{resp.Body, &w.wiretap}
	}
	return resp, err
}

// requests returns the requests from the n-th one on.
func (w *rangeTap) requests(n int) []rangeRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked[n:])
}

// current returns the number of the watch that runs, or -1 if it does not select the cache's slots.
func (w *rangeTap) current() int {
	all, now := w.requests(0), w.slots()
	for n := len(all) - 1; n >= 0; n-- {
		if all[n].watch && all[n].status == http.StatusOK {
			if slices.Equal(all[n].slots, now) {
				return n
			}
			return -1
		}
	}
	return -1
}

var rangeBounds = regexp.MustCompile(`'0x([0-9a-f]{2})0{14}', '0x([0-9a-f]{2,3})0{14}'`)

// has reports whether the request selects a slot.
func (r rangeRequest) has(slot uint8) bool {
	for _, bounds := range rangeBounds.FindAllStringSubmatch(r.selector, -1) {
		from, err := strconv.ParseUint(bounds[1], 16, 16)
		Expect(err).NotTo(HaveOccurred())
		to, err := strconv.ParseUint(bounds[2], 16, 16)
		Expect(err).NotTo(HaveOccurred())
		if from <= uint64(slot) && uint64(slot) < to {
			return true
		}
	}
	return r.selector == ""
}

// Reconcile implements controller.Reconciler.
func (k *ranger) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if !strings.HasSuffix(key.Namespace, rangeSuffix) {
		return controller.Result{}, nil
	}
	defer k.fleet.enter(k.name, key)()
	m, err := k.maps.Get(ctx, key)
	if apierrors.IsNotFound(err) || err == nil && m.Data["seen"] == m.Data["want"] {
		return controller.Result{}, nil
	}
	if err == nil {
		m.Data["seen"] = m.Data["want"]
		_, err = k.writes.Update(ctx, m)
	}
	return controller.Result{}, err
}

func (k *ranger) end() {
	k.stop()
	<-k.ended
}

func (k *ranger) owns(namespace string) bool {
	return slices.Contains(k.manager.Shards().Status().Owned, int(rangeSlot(namespace)))
}

func rangeSlot(namespace string) uint8 {
	GinkgoHelper()
	slot, err := shard.ByNamespaceRange().Slot(types.NamespacedName{Namespace: namespace, Name: "x"})
	Expect(err).NotTo(HaveOccurred())
	return slot
}

// rangers are the replicas of a group, and an administrator.
type rangers struct {
	ctx        context.Context //nolint:containedctx // of one spec
	cluster    *envtest.Cluster
	admin      kubernetes.Interface
	lease      string // the namespace of the Leases
	garble     bool   // of the next replicas
	namespaces []string
	members    []*ranger

	mu    sync.Mutex // guards the fields below
	runs  map[types.NamespacedName]string
	twice []string // keys that two replicas reconciled at once
}

func newRangers(ctx context.Context, c *envtest.Cluster) *rangers {
	GinkgoHelper()
	f := &rangers{ctx: ctx, cluster: c, runs: map[types.NamespacedName]string{}}
	cfg := c.Config()
	cfg.QPS = -1
	h, err := rest.HTTPClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	f.admin, err = kubernetes.NewForConfigAndClient(cfg, h)
	Expect(err).NotTo(HaveOccurred())
	f.lease, err = c.Namespace(ctx, "rangers-")
	Expect(err).NotTo(HaveOccurred())
	for letter := 'a'; letter <= 'p'; letter++ {
		name := string(letter) + rangeSuffix
		f.namespaces = append(f.namespaces, name)
		_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		Expect(client.IgnoreAlreadyExists(err)).To(Succeed()) // of another spec
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: f.lease}, Data: map[string]string{"want": "first@" + name}}
		_, err = f.admin.CoreV1().ConfigMaps(name).Create(ctx, m, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	return f
}

// enter records that a replica reconciles a key, until leave is called.
func (f *rangers) enter(name string, key types.NamespacedName) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, runs := f.runs[key]; runs {
		f.twice = append(f.twice, fmt.Sprintf("%s by %s and %s", key, other, name))
	}
	f.runs[key] = name
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.runs, key)
	}
}

// join starts replicas, and waits until all have their part of the slots and select it.
func (f *rangers) join(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		f.members = append(f.members, f.start(name))
	}
	share := 256 / len(f.members)
	for _, k := range f.members {
		Eventually(f.ctx, func() int { return len(k.manager.Shards().Status().Owned) }, patience).Should(BeElementOf(share, share+1), k.name)
	}
	for _, k := range f.members {
		Eventually(f.ctx, func() int { return len(k.manager.Slots().Elements()) }, patience).Should(BeElementOf(share, share+1), k.name)
		Eventually(f.ctx, k.tap.current, patience).Should(BeNumerically(">=", 0), k.name)
	}
}

func (f *rangers) start(name string) *ranger {
	GinkgoHelper()
	k := &ranger{name: name, fleet: f, tap: &rangeTap{garble: f.garble}, ended: make(chan struct{})}
	cfg := rest.CopyConfig(f.cluster.Config())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		k.tap.next = next
		return k.tap
	})
	k.manager = manager.New(cfg, manager.Options{
		Name: "rangers", Logger: slog.New(slog.DiscardHandler), Strict: true,
		LeaderElection: &leaderelection.Options{Lease: "rangers", Namespace: f.lease, Identity: name},
		Shards:         &shard.Options{By: shard.ByNamespaceRange(), Settle: time.Millisecond},
	})
	k.tap.slots = k.manager.Slots().Elements
	k.maps = cache.ForScope[*corev1.ConfigMap](k.manager.Cache(), cache.Scope{Slots: k.manager.Slots()})
	k.writes = client.For[*corev1.ConfigMap](k.manager.Client())
	c := controller.New("ranger", k, controller.Options{})
	c.Watch(source.Kind(k.maps, handler.Self()))
	k.manager.Add(c)
	ctx, stop := context.WithCancel(f.ctx)
	k.stop = stop
	go func() {
		defer GinkgoRecover()
		defer close(k.ended)
		Expect(k.manager.Run(ctx)).To(Succeed())
	}()
	DeferCleanup(k.end)
	return k
}

// change gives each ConfigMap another text, and waits until it was seen. Then each namespace has
// one owner, which has received the text. If the API server selects, the other replicas have not,
// unless their selector has the slot, too.
func (f *rangers) change(text string, selects bool) {
	GinkgoHelper()
	began := map[*ranger]int{}
	for _, k := range f.members {
		if selects { // a selector may be from just before the slots changed; another watch follows
			Eventually(f.ctx, func() bool { return f.narrow(k) }, patience).Should(BeTrue(), "the selector of %s has all namespaces", k.name)
		}
		began[k] = max(k.tap.current(), 0)
	}
	for _, namespace := range f.namespaces {
		patch := fmt.Appendf(nil, `{"data":{"want":"%s@%s"}}`, text, namespace)
		_, err := f.admin.CoreV1().ConfigMaps(namespace).Patch(f.ctx, f.lease, types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	for _, namespace := range f.namespaces {
		Eventually(f.ctx, func() (string, error) {
			m, err := f.admin.CoreV1().ConfigMaps(namespace).Get(f.ctx, f.lease, metav1.GetOptions{})
			return m.Data["seen"], err
		}, patience).Should(Equal(text + "@" + namespace))
	}
	for _, k := range f.members {
		f.received(k, text, k.tap.requests(began[k]), selects)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	Expect(f.twice).To(BeEmpty())
}

// narrow reports whether the watch that runs does not select all namespaces.
func (f *rangers) narrow(k *ranger) bool {
	n := k.tap.current()
	return n >= 0 && slices.ContainsFunc(f.namespaces, func(namespace string) bool { return !k.tap.requests(n)[0].has(rangeSlot(namespace)) })
}

// received checks what a replica has received of a change, by its requests since then.
func (f *rangers) received(k *ranger, text string, requests []rangeRequest, selects bool) {
	GinkgoHelper()
	foreign := 0
	for _, namespace := range f.namespaces {
		mark, slot := text+"@"+namespace, rangeSlot(namespace)
		owners := slices.DeleteFunc(slices.Clone(f.members), func(k *ranger) bool { return !k.owns(namespace) })
		Expect(owners).To(HaveLen(1), namespace)
		selected := slices.ContainsFunc(requests, func(r rangeRequest) bool { return r.has(slot) })
		switch {
		case owners[0] == k || !selects:
			Eventually(f.ctx, func() bool { return k.tap.heard(mark) }, patience).Should(BeTrue(), "%s does not receive %s", k.name, mark)
		case !selected:
			foreign++
			Expect(k.tap.heard(mark)).To(BeFalse(), "%s receives %s", k.name, mark)
		}
	}
	if selects {
		Expect(foreign).To(BeNumerically(">", 0), "the selector of %s has all namespaces", k.name)
	}
}

// selectedBy checks how each replica selects its slots.
func (f *rangers) selectedBy(want string) {
	GinkgoHelper()
	for _, k := range f.members {
		Expect(k.maps.State().Slots).To(HaveSuffix("of 256 slots, selected by "+want), k.name)
	}
}

// statusOfSelector returns the API server's answer to a list with a shardSelector.
func (f *rangers) statusOfSelector(selector string) (code int) {
	f.admin.CoreV1().RESTClient().Get().Resource("configmaps").Param("shardSelector", selector).Do(f.ctx).StatusCode(&code)
	return code
}

var _ = Describe("slots that are ranges of namespaces", Ordered, func() {
	var gated *envtest.Cluster
	BeforeAll(func(ctx SpecContext) {
		var err error
		gated, err = envtest.Start(ctx, envtest.Options{APIServerArgs: []string{"--feature-gates=ShardedListAndWatch=true"}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(gated.Stop()).To(Succeed()) })
	})

	It("are selected by an API server with the feature gate, also when they move", func(ctx SpecContext) {
		f := newRangers(ctx, gated)
		f.join("one", "two")
		f.change("two", true)
		f.selectedBy("shardSelector")
		f.join("three")
		f.change("three", true)
		f.selectedBy("shardSelector")
	})

	It("are selected by the client if the API server refuses the selector", func(ctx SpecContext) {
		f := newRangers(ctx, gated)
		Expect(f.statusOfSelector("shardRange(object.metadata.name, '0', '1')")).To(Equal(http.StatusInternalServerError))
		f.garble = true
		f.join("one", "two")
		f.change("two", false)
		f.selectedBy("shardSelector, which the API server refuses")
	})

	It("are selected by the client if the API server does not have the feature gate", func(ctx SpecContext) {
		f := newRangers(ctx, cluster)
		Expect(f.statusOfSelector("nonsense")).To(Equal(http.StatusOK))
		f.join("one", "two")
		f.change("two", false)
		f.selectedBy("shardSelector, which the API server ignores")
	})
})
