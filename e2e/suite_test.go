// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/source"
)

func TestMain(m *testing.M) {
	ginkgoWaitsForSignals := goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2")
	goleak.VerifyTestMain(m, ginkgoWaitsForSignals)
}

func TestScenarios(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Setpoint in trouble")
}

// patience is how long a scenario may take before it counts as hanging.
const patience = 2 * time.Minute

var cluster *envtest.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	cluster, err = envtest.Start(ctx, envtest.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cluster.Stop()).To(Succeed()) })
})

// Lamp is a custom resource.
type Lamp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Watts int `json:"watts"`
}

// DeepCopyObject implements runtime.Object.
func (l *Lamp) DeepCopyObject() runtime.Object {
	c := *l
	l.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// LampList is a list of lamps.
type LampList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Lamp `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *LampList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = append([]Lamp(nil), l.Items...)
	return &c
}

var lamps = schema.GroupVersionResource{Group: "scenario.setpoint.dev", Version: "v1", Resource: "lamps"}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	Expect(scheme.AddToScheme(s)).To(Succeed())
	s.AddKnownTypes(lamps.GroupVersion(), &Lamp{}, &LampList{})
	metav1.AddToGroupVersion(s, lamps.GroupVersion())
	return s
}

// world is a program with controllers behind a proxy, and a direct client of the API server.
type world struct {
	ctx       context.Context //nolint:containedctx // of one spec
	proxy     *fault.Proxy
	client    *client.Client
	cache     *cache.Cache
	direct    kubernetes.Interface
	dynamic   dynamic.Interface
	namespace string
	running   sync.WaitGroup
	stop      context.CancelFunc
}

// newWorld returns a world whose controllers have the credentials of cfg.
func newWorld(ctx context.Context, cfg *rest.Config) *world {
	w := &world{}
	var err error
	w.proxy, err = fault.Start(ctx, cluster.Config(), fault.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.proxy.Stop)
	through, err := w.proxy.ConfigOf(cfg)
	Expect(err).NotTo(HaveOccurred())
	w.client, err = client.New(through, client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.client.Close)
	w.cache = cache.New(w.client, cache.Options{})
	admin := cluster.Config()
	admin.QPS = -1
	h, err := rest.HTTPClientFor(admin)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(h.CloseIdleConnections)
	w.direct, err = kubernetes.NewForConfigAndClient(admin, h)
	Expect(err).NotTo(HaveOccurred())
	w.dynamic, err = dynamic.NewForConfigAndClient(admin, h)
	Expect(err).NotTo(HaveOccurred())
	w.namespace, err = cluster.Namespace(ctx, "scenario-")
	Expect(err).NotTo(HaveOccurred())
	w.ctx, w.stop = context.WithCancel(ctx)
	DeferCleanup(func() {
		w.stop()
		w.running.Wait()
	})
	return w
}

// start runs the cache and controllers until the spec ends.
func (w *world) start(controllers ...*controller.Controller[types.NamespacedName]) {
	w.running.Go(func() { Expect(w.cache.Run(w.ctx)).To(Succeed()) })
	for _, c := range controllers {
		w.running.Go(func() { Expect(c.Run(w.ctx)).To(Succeed()) })
	}
}

// mirror is a reconciler that records the version of each object that it sees.
type mirror[T cache.Object] struct {
	handle *cache.Handle[T]

	mu      sync.Mutex // guards what follows
	seen    map[types.NamespacedName]string
	changed chan struct{}
}

// mirrorOf returns a controller that mirrors a handle.
func mirrorOf[T cache.Object](name string, h *cache.Handle[T]) (*controller.Controller[types.NamespacedName], *mirror[T]) {
	m := &mirror[T]{handle: h, seen: map[types.NamespacedName]string{}, changed: make(chan struct{})}
	c := controller.New(name, m, controller.Options{Workers: 4})
	c.Watch(source.Kind(h, handler.Self()))
	return c, m
}

// Reconcile implements controller.Reconciler.
func (m *mirror[T]) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	obj, err := m.handle.Get(ctx, key)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.seen[key] = obj.GetResourceVersion()
	} else {
		delete(m.seen, key)
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return controller.Result{}, nil
}

func (m *mirror[T]) now() (map[types.NamespacedName]string, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.seen), m.changed
}

// until returns when the mirror contains the wanted objects. It checks after each Reconcile.
func (m *mirror[T]) until(ctx context.Context, want func(map[types.NamespacedName]string) bool) {
	GinkgoHelper()
	for {
		seen, changed := m.now()
		if want(seen) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			Fail("the mirror shows " + m.handle.State().String())
		}
	}
}

// follows returns when every object was reconciled in its current state, and no deleted one is
// shown.
func (m *mirror[T]) follows(ctx context.Context, r dynamic.ResourceInterface) {
	GinkgoHelper()
	list, err := r.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	live := map[types.NamespacedName]string{}
	Expect(meta.EachListItem(list, func(obj runtime.Object) error {
		o, err := meta.Accessor(obj)
		if err == nil {
			live[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}] = o.GetResourceVersion()
		}
		return err
	})).To(Succeed())
	m.until(ctx, func(seen map[types.NamespacedName]string) bool { return maps.Equal(seen, live) })
}

// reaches returns when a handle is in a phase.
func (w *world) reaches(ctx context.Context, state func() hook.InformerState, phase hook.Phase) hook.InformerState {
	GinkgoHelper()
	for {
		s := state()
		if s.Phase == phase {
			return s
		}
		lapse(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			Fail("not " + string(phase) + ": " + s.String())
		}
	}
}

// lapse lets real time pass, for slow or timed events.
func lapse(ctx context.Context, d time.Duration) {
	passed := time.NewTimer(d)
	defer passed.Stop()
	select {
	case <-passed.C:
	case <-ctx.Done():
	}
}
