// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
)

// siteKeeper is a replica of a shard group. It keeps a Secret for each ConfigMap, and writes it
// only if it is missing or has another text.
type siteKeeper struct {
	name    string
	manager *manager.Manager
	sites   *cache.Handle[*corev1.ConfigMap]
	pages   *cache.Handle[*corev1.Secret]
	writes  *client.Handle[*corev1.Secret]
	heard   *wiretap
	stop    context.CancelFunc
	ended   chan struct{}

	mu         sync.Mutex // guards reconciled
	reconciled []string
}

// wiretap keeps what lists and watches of Secrets receive.
type wiretap struct {
	next http.RoundTripper

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (w *wiretap) WrappedRoundTripper() http.RoundTripper { return w.next }

func (w *wiretap) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets") {
		resp.Body = tapped{resp.Body, w}
	}
	return resp, err
}

type tapped struct {
	io.ReadCloser

	tap *wiretap
}

func (t tapped) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	t.tap.mu.Lock()
	defer t.tap.mu.Unlock()
	t.tap.text.Write(p[:n])
	return n, err
}

func (w *wiretap) heard(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.text.Bytes(), []byte(name))
}

// startKeeper starts a replica of the group "sites" in a namespace.
func startKeeper(ctx context.Context, namespace, name string, labels bool) *siteKeeper {
	GinkgoHelper()
	k := &siteKeeper{name: name, heard: &wiretap{}, ended: make(chan struct{})}
	cfg := rest.CopyConfig(cluster.Config())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		k.heard.next = next
		return k.heard
	})
	k.manager = manager.New(cfg, manager.Options{
		Name: "sites", Logger: slog.New(slog.DiscardHandler), Strict: true,
		LeaderElection: &leaderelection.Options{Lease: "sites", Namespace: namespace, Identity: name},
		Shards:         &shard.Options{LabelChildren: labels, Settle: time.Millisecond},
	})
	here := cache.Scope{Namespaces: cache.NewSet(namespace), Slots: k.manager.Slots()}
	k.sites = cache.ForScope[*corev1.ConfigMap](k.manager.Cache(), here)
	here.SlotOwner = k.sites.GroupVersionKind()
	k.pages = cache.ForScope[*corev1.Secret](k.manager.Cache(), here)
	k.writes = client.For[*corev1.Secret](k.manager.Client())
	c := controller.New("site", k, controller.Options{})
	c.Watch(source.Kind(k.sites, handler.Self()))
	c.Watch(source.Kind(k.pages, handler.Owner(k.sites)))
	k.manager.Add(c)
	ctx, k.stop = context.WithCancel(ctx)
	go func() {
		defer GinkgoRecover()
		defer close(k.ended)
		Expect(k.manager.Run(ctx)).To(Succeed())
	}()
	DeferCleanup(k.end)
	return k
}

func (k *siteKeeper) end() {
	k.stop()
	<-k.ended
}

// Reconcile implements controller.Reconciler.
func (k *siteKeeper) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if !strings.HasPrefix(key.Name, "site-") {
		return controller.Result{}, nil
	}
	k.mu.Lock()
	k.reconciled = append(k.reconciled, key.Name)
	k.mu.Unlock()
	site, err := k.sites.Get(ctx, key)
	if apierrors.IsNotFound(err) {
		return controller.Result{}, nil
	}
	var page *corev1.Secret
	if err == nil {
		page, err = k.pages.Get(ctx, pageOf(key))
	}
	switch {
	case err == nil && string(page.Data["text"]) == site.Data["text"]:
	case err == nil || apierrors.IsNotFound(err):
		_, err = k.writes.Apply(ctx, coreac.Secret(pageOf(key).Name, key.Namespace).
			WithOwnerReferences(k.sites.OwnerRef(site)).WithData(map[string][]byte{"text": []byte(site.Data["text"])}))
	}
	return controller.Result{}, err
}

func pageOf(site types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: site.Namespace, Name: site.Name + ".page"}
}

// runs returns how often this replica has reconciled the site.
func (k *siteKeeper) runs(site string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range k.reconciled {
		if name == site {
			n++
		}
	}
	return n
}

func (k *siteKeeper) owns(slot uint8) bool {
	return slices.Contains(k.manager.Shards().Status().Owned, int(slot))
}

// fleet is two replicas, and an administrator.
type keeperFleet struct {
	ctx       context.Context //nolint:containedctx // of one spec
	namespace string
	admin     kubernetes.Interface
	members   []*siteKeeper
}

func newKeeperFleet(ctx context.Context) *keeperFleet {
	GinkgoHelper()
	namespace, err := cluster.Namespace(ctx, "slotlabel-")
	Expect(err).NotTo(HaveOccurred())
	cfg := cluster.Config()
	cfg.QPS = -1
	admin, err := kubernetes.NewForConfig(cfg)
	Expect(err).NotTo(HaveOccurred())
	return &keeperFleet{ctx: ctx, namespace: namespace, admin: admin}
}

// start starts two replicas, and waits until each has half of the slots.
func (f *keeperFleet) start(labels bool) {
	GinkgoHelper()
	f.members = nil
	for _, name := range []string{"one", "two"} {
		f.members = append(f.members, startKeeper(f.ctx, f.namespace, name, labels))
	}
	f.balanced()
}

func (f *keeperFleet) balanced() {
	GinkgoHelper()
	for _, k := range f.members {
		Eventually(f.ctx, func() int { return len(k.manager.Shards().Status().Owned) }, patience).Should(Equal(128))
	}
}

// create makes a site, and its page if it should exist before.
func (f *keeperFleet) create(name string, withPage bool) {
	GinkgoHelper()
	site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": "hello"}}
	site, err := f.admin.CoreV1().ConfigMaps(f.namespace).Create(f.ctx, site, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	if !withPage {
		return
	}
	page := &corev1.Secret{Data: map[string][]byte{"text": []byte("hello")}}
	page.Name = name + ".page"
	page.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(site, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	_, err = f.admin.CoreV1().Secrets(f.namespace).Create(f.ctx, page, metav1.CreateOptions{})
	Expect(client.IgnoreAlreadyExists(err)).To(Succeed()) // a replica may be first
}

// slot returns the slot of a site, and the label that its page should have.
func (f *keeperFleet) slot(site string) (slot uint8, label string) {
	GinkgoHelper()
	slot, err := shard.ByKey().Slot(types.NamespacedName{Namespace: f.namespace, Name: site})
	Expect(err).NotTo(HaveOccurred())
	return slot, shard.ByKey().LabelValue(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), slot)
}

// label returns the stored label of the site's page, or "none".
func (f *keeperFleet) label(site string) func() string {
	return func() string {
		page, err := f.admin.CoreV1().Secrets(f.namespace).Get(f.ctx, site+".page", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if label, ok := page.Labels[shard.LabelKey("sites")]; ok {
			return label
		}
		return "none"
	}
}

func (f *keeperFleet) labelled(sites ...string) {
	GinkgoHelper()
	for _, site := range sites {
		_, want := f.slot(site)
		Eventually(f.ctx, f.label(site), patience).Should(Equal(want), site)
	}
}

// ownerOf returns the member that owns a site, and the other one.
func (f *keeperFleet) ownerOf(site string) (owner, other *siteKeeper) {
	GinkgoHelper()
	slot, _ := f.slot(site)
	one, two := f.members[0], f.members[1]
	if two.owns(slot) {
		one, two = two, one
	}
	Expect(one.owns(slot)).To(BeTrue(), site)
	return one, two
}

func siteNames(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("site-%02d", i))
	}
	return all
}

var _ = Describe("the label with the slot of the controller", func() {
	It("keeps children of other replicas from the network", func(ctx SpecContext) {
		f := newKeeperFleet(ctx)
		f.start(true)
		names := siteNames(0, 20)
		for _, name := range names {
			f.create(name, false)
		}
		f.labelled(names...)
		for _, name := range names {
			owner, other := f.ownerOf(name)
			Eventually(ctx, func() bool { return owner.heard.heard(name + ".page") }, patience).Should(BeTrue(), name)
			Expect(other.heard.heard(name+".page")).To(BeFalse(), "%s has received %s.page", other.name, name)
			Expect(other.runs(name)).To(BeZero(), "%s has reconciled %s", other.name, name)
		}
	})

	It("is set back after an edit that hides the child", func(ctx SpecContext) {
		f := newKeeperFleet(ctx)
		f.start(true)
		names := siteNames(0, 20)
		for _, name := range names {
			f.create(name, false)
		}
		f.labelled(names...)
		mine, other := f.ownerOf(names[0])
		foreign := slices.IndexFunc(names, func(name string) bool { slot, _ := f.slot(name); return other.owns(slot) })
		_, lie := f.slot(names[foreign])
		before := mine.runs(names[0])
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, shard.LabelKey("sites"), lie)
		_, err := f.admin.CoreV1().Secrets(f.namespace).Patch(ctx, names[0]+".page", types.MergePatchType, patch, metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		f.labelled(names[0])
		Eventually(ctx, func() error {
			_, err := mine.pages.Get(ctx, types.NamespacedName{Namespace: f.namespace, Name: names[0] + ".page"})
			return err
		}, patience).Should(Succeed())
		Expect(mine.runs(names[0])).To(BeNumerically(">", before))
		Expect(other.runs(names[0])).To(BeZero())
	})

	It("comes to existing children when a rolling update turns it on", func(ctx SpecContext) {
		f := newKeeperFleet(ctx)
		f.start(false)
		names := siteNames(0, 10)
		for i, name := range names {
			f.create(name, i%2 == 0)
		}
		for _, name := range names {
			Eventually(ctx, f.label(name), patience).Should(Equal("none"), name)
		}
		for i, k := range f.members {
			next := startKeeper(ctx, f.namespace, k.name+"-new", true)
			k.end()
			f.members[i] = next
			f.balanced()
		}
		f.labelled(names...)
	})
})
