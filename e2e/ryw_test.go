// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// ownWrites is a world with a controller. One of its keys writes in its first Reconcile, is due
// again immediately, and reads in its second.
type ownWrites struct {
	*world

	clientset kubernetes.Interface // these keep the ledger
	json      kubernetes.Interface
	dyn       dynamic.Interface
	meta      metadata.Interface

	key types.NamespacedName
	// The Reconciles of the key; any further ones do nothing.
	steps   []func(ctx context.Context) error
	n       atomic.Int64
	ended   chan error    // is sent what each Reconcile of a step has returned
	parked  chan struct{} // is sent to when a key is put off
	retried chan struct{} // is sent to when a key is to be tried again
	awaited chan hook.Awaited
	marking bool        // what is marked for deletion counts as gone
	other   chan string // is sent the names of other keys that are reconciled
}

func newOwnWrites(ctx context.Context) *ownWrites {
	GinkgoHelper()
	w := &ownWrites{
		world: newWorld(ctx, cluster.Config()), ended: make(chan error, 100), parked: make(chan struct{}, 100),
		retried: make(chan struct{}, 100), awaited: make(chan hook.Awaited, 100), other: make(chan string, 100),
	}
	w.key = types.NamespacedName{Namespace: w.namespace, Name: "key"}
	cfg, http := w.client.Config(), w.client.HTTPClient()
	var err error
	w.dyn, err = dynamic.NewForConfigAndClient(cfg, http)
	Expect(err).NotTo(HaveOccurred())
	w.meta, err = metadata.NewForConfigAndClient(cfg, http)
	Expect(err).NotTo(HaveOccurred())
	w.json, err = kubernetes.NewForConfigAndClient(cfg, http)
	Expect(err).NotTo(HaveOccurred())
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+",application/json"
	w.clientset, err = kubernetes.NewForConfigAndClient(cfg, http)
	Expect(err).NotTo(HaveOccurred())
	return w
}

// controller returns the controller.
func (w *ownWrites) controller(o controller.Options, q workqueue.Options[types.NamespacedName]) *controller.Controller[types.NamespacedName] {
	o.Logger = slog.New(slog.DiscardHandler) // what fails here is meant to
	o.Hook = hook.On(func(a *hook.Awaited) { w.awaited <- *a })
	q.Hook = hook.On(func(e *hook.QueueSettled) {
		switch e.Outcome {
		case hook.QueuePark:
			w.parked <- struct{}{}
		case hook.QueueRetry:
			w.retried <- struct{}{}
		}
	})
	return controller.NewWithQueue("own-writes", controller.Func[types.NamespacedName](w.reconcile), o, q)
}

func (w *ownWrites) reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if key != w.key {
		if key.Namespace == w.namespace { // other specs have left theirs
			w.other <- key.Name
		}
		return controller.Result{}, nil
	}
	n := int(w.n.Add(1))
	if n > len(w.steps) {
		return controller.Result{}, nil
	}
	err := w.steps[n-1](ctx)
	w.ended <- err
	return controller.Result{}, err
}

// view is what a handle shows of the world's namespace, or of cluster-scoped objects named like it,
// and what the API server has.
type view struct {
	handle       controller.Readable
	cached, live func(ctx context.Context) (map[string]string, error)
}

func (v view) compare(ctx context.Context) error {
	cached, err := v.cached(ctx)
	if err != nil {
		return err
	}
	live, err := v.live(ctx)
	if err == nil && !maps.Equal(cached, live) {
		err = fmt.Errorf("%s shows %v, the API server has %v", v.handle, cached, live)
	}
	return err
}

// viewOf compares a handle with a list, whose selectors must equal the handle's.
func viewOf[T cache.Object](w *ownWrites, h *cache.Handle[T], r schema.GroupVersionResource, o metav1.ListOptions) view {
	return view{
		handle: h,
		cached: func(ctx context.Context) (map[string]string, error) {
			var objects []metav1.Object
			for obj, err := range h.All(ctx, cache.ListOptions{}) {
				if err != nil {
					return nil, err
				}
				objects = append(objects, obj)
			}
			return w.states(objects), nil
		},
		live: func(ctx context.Context) (map[string]string, error) {
			var objects []metav1.Object
			all, err := w.dynamic.Resource(r).List(ctx, o)
			if err != nil {
				return nil, err
			}
			for i := range all.Items {
				objects = append(objects, &all.Items[i])
			}
			return w.states(objects), nil
		},
	}
}

// states returns the versions of this world's objects.
func (w *ownWrites) states(objects []metav1.Object) map[string]string {
	states := map[string]string{}
	for _, obj := range objects {
		if w.marking && obj.GetDeletionTimestamp() != nil {
			continue
		}
		if obj.GetNamespace() == w.namespace || obj.GetNamespace() == "" && strings.HasPrefix(obj.GetName(), w.namespace) {
			states[obj.GetName()] = fmt.Sprint(obj.GetUID(), " at ", obj.GetResourceVersion())
		}
	}
	return states
}

// plan is what one spec of the matrix does.
type plan struct {
	views   []view                                // what is declared, and has to show the write
	reads   []controller.Readable                 // other declared reads
	watches []source.Source[types.NamespacedName] // other watches
	// Closed when watches may freeze; nil: when the key's controller has synced.
	synced <-chan struct{}
	// Which watches show nothing when it writes; default: all.
	freeze fault.Match
	// instead, they show each event some time after it happened, and writes are slow.
	oneByOne bool
	write    func(ctx context.Context) error
	recover  func() // called when the key is parked
}

// expectation is the expected result for a key that is due again just after its write.
type expectation int

const (
	waits  expectation = iota // until all views show it
	atOnce                    // nothing has to be waited for
	// It cannot be known whether all is shown: the Reconcile starts, and Stale says so.
	inDoubt
)

// run writes while the watches show nothing, and checks whether the next Reconcile waits.
func (w *ownWrites) run(ctx context.Context, p plan, want expectation) {
	GinkgoHelper()
	c := w.controller(controller.Options{}, workqueue.Options[types.NamespacedName]{})
	for _, v := range p.views {
		if v.handle != nil {
			c.Reads(v.handle)
		}
	}
	c.Reads(p.reads...)
	for _, s := range p.watches {
		c.Watch(s)
	}
	var frozen *fault.Fault
	w.steps = append(w.steps, func(ctx context.Context) error {
		c.Queue().Add(w.key) // as another client's change may at any time
		return p.write(ctx)
	}, func(ctx context.Context) error {
		all := []error{controller.Stale(ctx)}
		for _, v := range p.views {
			all = append(all, v.compare(ctx))
		}
		return errors.Join(all...)
	})
	w.start(c)
	w.eventually(ctx, c.Synced())
	if p.synced != nil {
		w.eventually(ctx, p.synced)
	}
	p.freeze.Verbs = []string{"watch"}
	rule := fault.Rule{Match: p.freeze, Freeze: true}
	if p.oneByOne {
		rule.Lag, rule.Freeze = 400*time.Millisecond, false
		w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create", "update", "delete"}}, Delay: 100 * time.Millisecond})
	}
	frozen = w.proxy.Add(rule)
	c.Queue().Add(w.key)
	Expect(w.next(ctx)).To(Succeed())
	select {
	case <-w.parked:
		Expect(want).To(Equal(waits), "it was put off: %s", w.state(c))
		if !p.oneByOne {
			frozen.Remove()
		}
		if p.recover != nil {
			p.recover()
		}
		Expect(w.next(ctx)).To(Succeed())
		var a hook.Awaited
		Expect(w.awaited).To(Receive(&a))
		Expect(a.Expired).To(BeFalse())
		Expect(a.Doubts).NotTo(HaveOccurred())
	case err := <-w.ended:
		switch want {
		case waits:
			Fail(fmt.Sprintf("the next Reconcile did not wait: %v", err))
		case atOnce:
			Expect(err).NotTo(HaveOccurred())
			Expect(w.awaited).NotTo(Receive())
		case inDoubt:
			Expect(err).To(HaveOccurred())
			GinkgoWriter.Println("stale:", err)
			var a hook.Awaited
			Expect(w.awaited).To(Receive(&a))
			Expect(a.Expired).To(BeFalse())
			Expect(a.Doubts).To(HaveOccurred())
		}
	case <-ctx.Done():
		Fail("there was no next Reconcile: " + w.state(c))
	}
}

// next waits for the end of a step.
func (w *ownWrites) next(ctx context.Context) error {
	GinkgoHelper()
	select {
	case err := <-w.ended:
		return err
	case <-ctx.Done():
		Fail("there was no Reconcile")
		return nil
	}
}

func (w *ownWrites) eventually(ctx context.Context, c <-chan struct{}) {
	GinkgoHelper()
	select {
	case <-c:
	case <-ctx.Done():
		Fail("it has not come to that")
	}
}

// state returns the state of the key in the queue.
func (w *ownWrites) state(c *controller.Controller[types.NamespacedName]) string {
	s, _ := c.Queue().Lookup(w.key)
	return fmt.Sprintf("%+v", s)
}

// configMap returns a ConfigMap in the world's namespace.
func (w *ownWrites) configMap(name string, labels ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	for _, l := range labels {
		metav1.SetMetaDataLabel(&m.ObjectMeta, l, "yes")
	}
	return m
}

// there creates an object before anything starts.
func (w *ownWrites) there(m *corev1.ConfigMap) *corev1.ConfigMap {
	GinkgoHelper()
	m, err := w.direct.CoreV1().ConfigMaps(m.Namespace).Create(w.ctx, m, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return m
}

// deployment creates a Deployment.
func (w *ownWrites) deployment(name string) *appsv1.Deployment {
	GinkgoHelper()
	match := map[string]string{"a": "b"}
	d, err := w.direct.AppsV1().Deployments(w.namespace).Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: match},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: match}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return d
}

// maps is a view of all ConfigMaps.
func (w *ownWrites) maps() view {
	return viewOf(w, cache.For[*corev1.ConfigMap](w.cache), configMaps, metav1.ListOptions{})
}

func (w *ownWrites) named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

func (w *ownWrites) own() *client.Handle[*corev1.ConfigMap] {
	return client.For[*corev1.ConfigMap](w.client)
}

var _ = Describe("A key that has written (C6)", func() {
	DescribeTable("is reconciled again when its caches show it", func(ctx SpecContext, want expectation, prepare func(w *ownWrites) plan) {
		w := newOwnWrites(ctx)
		w.run(ctx, prepare(w), want)
	}, ownWritesEntries())

	It("waits until an informer that is failing has recovered", func(ctx SpecContext) {
		w := newOwnWrites(ctx)
		secrets := cache.For[*corev1.Secret](w.cache)
		p := plan{views: []view{w.maps()}, reads: []controller.Readable{secrets}}
		forbidden := w.proxy.Add(fault.Rule{Match: fault.Match{Resources: []string{"secrets"}, Verbs: []string{"list", "watch"}}, Refuse: forbidden("secrets")})
		p.recover = forbidden.Remove
		p.write = func(ctx context.Context) error {
			_, err := client.For[*corev1.Secret](w.client).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s"}})
			return err
		}
		w.run(ctx, p, waits)
	}, NodeTimeout(patience))

	It("starts after the limit, and reports what is missing", func(ctx SpecContext) {
		w := newOwnWrites(ctx)
		maps := w.maps()
		c := w.controller(controller.Options{ReadYourWrites: 300 * time.Millisecond}, workqueue.Options[types.NamespacedName]{})
		c.Reads(maps.handle)
		var written *corev1.ConfigMap
		w.steps = append(w.steps, func(ctx context.Context) (err error) {
			c.Queue().Add(w.key)
			written, err = w.own().Create(ctx, w.configMap("a"))
			return err
		}, controller.Stale, func(ctx context.Context) error { return errors.Join(controller.Stale(ctx), maps.compare(ctx)) })
		w.start(c)
		w.eventually(ctx, c.Synced())
		frozen := w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Freeze: true})
		c.Queue().Add(w.key)
		Expect(w.next(ctx)).To(Succeed())
		Expect(w.next(ctx)).To(MatchError(SatisfyAll(
			ContainSubstring("not shown within 300ms"), ContainSubstring("ConfigMap.v1"), ContainSubstring(w.namespace+"/a"), ContainSubstring(written.ResourceVersion))))
		var a hook.Awaited
		Expect(w.awaited).To(Receive(&a))
		Expect(a.Expired).To(BeTrue())
		Expect(a.Took).To(BeNumerically(">=", 300*time.Millisecond))
		Expect(a.Doubts).To(HaveOccurred())
		frozen.Remove()
	}, NodeTimeout(patience))

	// ends lets a key wait for an event that never comes, and then makes the wait pointless.
	ends := func(ctx SpecContext, prepare func(w *ownWrites) (c *controller.Controller[types.NamespacedName], write func(ctx context.Context) error, end func())) hook.Awaited {
		GinkgoHelper()
		w := newOwnWrites(ctx)
		c, write, end := prepare(w)
		w.steps = append(w.steps, func(ctx context.Context) error {
			c.Queue().Add(w.key)
			return write(ctx)
		}, func(context.Context) error { return nil })
		w.start(c)
		w.eventually(ctx, c.Synced())
		w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Freeze: true})
		c.Queue().Add(w.key)
		Expect(w.next(ctx)).To(Succeed())
		w.eventually(ctx, w.parked)
		end()
		Expect(w.next(ctx)).To(Succeed())
		var a hook.Awaited
		Expect(w.awaited).To(Receive(&a))
		Expect(a.Expired).To(BeFalse())
		return a
	}

	It("waits no longer when the namespace leaves the scope", func(ctx SpecContext) {
		a := ends(ctx, func(w *ownWrites) (*controller.Controller[types.NamespacedName], func(ctx context.Context) error, func()) {
			namespaces := cache.NewSet("default", w.namespace)
			c := w.controller(controller.Options{}, workqueue.Options[types.NamespacedName]{})
			c.Reads(cache.ForScope[*corev1.ConfigMap](w.cache, cache.Scope{Namespaces: namespaces}))
			return c, func(ctx context.Context) error { return ignore(w.own().Create(ctx, w.configMap("a"))) }, func() { namespaces.Remove(w.namespace) }
		})
		Expect(a.Doubts).NotTo(HaveOccurred())
	}, NodeTimeout(patience))

	It("waits no longer when the source is not watched any more", func(ctx SpecContext) {
		a := ends(ctx, func(w *ownWrites) (*controller.Controller[types.NamespacedName], func(ctx context.Context) error, func()) {
			c := w.controller(controller.Options{}, workqueue.Options[types.NamespacedName]{})
			src := source.Kind(cache.For[*corev1.ConfigMap](w.cache), handler.Self())
			c.Watch(src)
			return c, func(ctx context.Context) error { return ignore(w.own().Create(ctx, w.configMap("a"))) }, func() {
				Expect(c.Unwatch(ctx, src)).To(Succeed())
			}
		})
		Expect(a.Doubts).NotTo(HaveOccurred())
	}, NodeTimeout(patience))

	It("keeps no worker from other keys", func(ctx SpecContext) {
		w := newOwnWrites(ctx)
		maps := w.maps()
		c := w.controller(controller.Options{Workers: 1}, workqueue.Options[types.NamespacedName]{})
		c.Reads(maps.handle)
		w.steps = append(w.steps, func(ctx context.Context) error {
			c.Queue().Add(w.key)
			_, err := w.own().Create(ctx, w.configMap("a"))
			return err
		}, maps.compare)
		w.start(c)
		w.eventually(ctx, c.Synced())
		frozen := w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Freeze: true})
		c.Queue().Add(w.key)
		Expect(w.next(ctx)).To(Succeed())
		w.eventually(ctx, w.parked)
		for n := range 50 {
			name := fmt.Sprint("other-", n)
			c.Queue().Add(w.named(name))
			select {
			case got := <-w.other:
				Expect(got).To(Equal(name))
			case <-ctx.Done():
				Fail("the worker is blocked")
			}
		}
		s, known := c.Queue().Lookup(w.key)
		Expect(known).To(BeTrue())
		Expect(s.State).To(Equal(workqueue.Parked))
		Expect(s.ParkReason).To(SatisfyAll(ContainSubstring("ConfigMap.v1"), ContainSubstring(w.namespace+"/a")))
		frozen.Remove()
		Expect(w.next(ctx)).To(Succeed())
	}, NodeTimeout(patience))
})

var _ = Describe("A key that has written and failed (C7)", func() {
	// failing lets a key fail after it has written its status, and another client change the object
	// later.
	failing := func(ctx SpecContext, early bool) {
		w := newOwnWrites(ctx)
		d := w.deployment("key")
		h := cache.For[*appsv1.Deployment](w.cache)
		c := w.controller(controller.Options{}, workqueue.Options[types.NamespacedName]{
			Backoff: workqueue.Exponential{Base: time.Hour, Max: time.Hour},
		})
		c.Watch(source.Kind(h, handler.Self()))
		var frozen *fault.Fault
		w.steps = append(w.steps, func(ctx context.Context) error {
			if !early {
				frozen = w.proxy.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Freeze: true})
			}
			d.Status.ObservedGeneration = 1
			written, err := client.For[*appsv1.Deployment](w.client).UpdateStatus(ctx, d)
			if early && err == nil { // wait until the key was added for it
				Eventually(ctx, func() bool {
					s, _ := c.Queue().Lookup(w.key)
					return slices.ContainsFunc(s.Reasons, func(r workqueue.Reason) bool { return r.ResourceVersion == written.ResourceVersion })
				}).Should(BeTrue())
			}
			return errors.Join(errors.New("it fails"), err)
		}, func(context.Context) error { return nil })
		w.start(c)
		Expect(w.next(ctx)).To(MatchError("it fails"))
		w.eventually(ctx, w.retried)
		if frozen != nil {
			frozen.Remove()
		}
		w.deployment("other") // its event comes after the status event
		Expect(<-w.other).To(Equal("other"))
		s, known := c.Queue().Lookup(w.key)
		Expect(known).To(BeTrue())
		Expect(s.State).To(Equal(workqueue.Waiting), "%+v", s)
		Expect(time.Until(s.Due)).To(BeNumerically(">", 50*time.Minute))
		Expect(w.n.Load()).To(BeEquivalentTo(1))
		By("somebody else changing the object")
		_, err := w.direct.AppsV1().Deployments(w.namespace).Patch(ctx, "key", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.next(ctx)).To(Succeed())
	}
	It("is not woken by it, when the event comes after its end", func(ctx SpecContext) { failing(ctx, false) }, NodeTimeout(patience))
	It("is not woken by it, when the event comes before its end", func(ctx SpecContext) { failing(ctx, true) }, NodeTimeout(patience))

	It("is woken by it after a success", func(ctx SpecContext) {
		w := newOwnWrites(ctx)
		d := w.deployment("key")
		c := w.controller(controller.Options{}, workqueue.Options[types.NamespacedName]{})
		c.Watch(source.Kind(cache.For[*appsv1.Deployment](w.cache), handler.Self()))
		w.steps = append(w.steps, func(ctx context.Context) error {
			d.Status.ObservedGeneration = 1
			return ignore(client.For[*appsv1.Deployment](w.client).UpdateStatus(ctx, d))
		}, func(context.Context) error { return nil })
		w.start(c)
		Expect(w.next(ctx)).To(Succeed())
		Expect(w.next(ctx)).To(Succeed())
	}, NodeTimeout(patience))
})
