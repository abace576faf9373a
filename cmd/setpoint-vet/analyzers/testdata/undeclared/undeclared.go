// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package undeclared

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

type reconciler struct {
	pods    *cache.Handle[*corev1.Pod]
	maps    *cache.Handle[*corev1.ConfigMap]
	secrets *cache.Handle[*corev1.Secret]
	jobs    *cache.Handle[*corev1.Service]
	kids    *cache.Handle[*corev1.PersistentVolumeClaim]
	index   *cache.Index[*corev1.Service]
}

func add(m *manager.Manager, c *client.Client) error {
	r := &reconciler{pods: cache.For[*corev1.Pod](m.Cache()), secrets: cache.For[*corev1.Secret](m.Cache())}
	r.index = cache.NewIndex(r.jobs, "a", func(*corev1.Service) []string { return nil })
	control := controller.New("pods", r, controller.Options{})
	control.Watch(source.Kind(r.pods, handler.Self()))
	control.Reads(r.maps)
	set, err := children.New(r.pods, c, children.Of(r.kids))
	if err != nil {
		return err
	}
	set.Watch(control)
	m.Add(control)
	return nil
}

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	if _, err := r.pods.Shared().Get(ctx, key); err != nil {
		return controller.Result{}, err
	}
	for range r.maps.All(ctx, cache.ListOptions{}) {
		_, _ = r.kids.Get(ctx, key)
	}
	_, _ = r.secrets.Get(ctx, key) // want `a Reconcile reads r.secrets, which its controller does not declare; pass the handle to the controller's Reads, or to the source.Kind of a Watch`
	return controller.Result{}, r.helper(ctx)
}

func (r *reconciler) helper(ctx context.Context) error {
	_, err := r.index.List(ctx, "a", cache.ListOptions{}) // want `a Reconcile reads r.index, which its controller does not declare`
	return err
}

// elsewhere is not called by the Reconcile.
func (r *reconciler) elsewhere(ctx context.Context) {
	_, _ = r.secrets.List(ctx, cache.ListOptions{})
}

func literals(pods *cache.Handle[*corev1.Pod], maps *cache.Handle[*corev1.ConfigMap]) {
	c := controller.New("literal", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		_, err := maps.Get(ctx, key) // want `a Reconcile reads maps, which its controller does not declare`
		return controller.Result{}, err
	}), controller.Options{})
	wire(c, pods)
	later := controller.New("later", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		_, err := maps.Get(ctx, key)
		return controller.Result{}, err
	}), controller.Options{})
	func() { wire(later, pods); later.Reads(maps) }()
}

func wire(c *controller.Controller[types.NamespacedName], pods *cache.Handle[*corev1.Pod]) {
	c.Watch(source.Kind(pods, handler.Self()))
}

// The declarations of what follows cannot be seen, or not all.

type visible struct{ pods *cache.Handle[*corev1.Pod] }

func (v *visible) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := v.pods.Get(ctx, key)
	return controller.Result{}, err
}

func New(v *visible) *controller.Controller[types.NamespacedName] {
	return controller.New("exported", v, controller.Options{})
}

type bySource struct{ pods *cache.Handle[*corev1.Pod] }

func (v *bySource) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := v.pods.Get(ctx, key)
	return controller.Result{}, err
}

func newBySource(v *bySource, s source.Source[types.NamespacedName]) {
	controller.New("source", v, controller.Options{}).Watch(s)
}

type bySlice struct{ pods *cache.Handle[*corev1.Pod] }

func (v *bySlice) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := v.pods.Get(ctx, key)
	return controller.Result{}, err
}

func newBySlice(v *bySlice, reads []controller.Readable) {
	controller.New("slice", v, controller.Options{}).Reads(reads...)
}

type kept struct{ pods *cache.Handle[*corev1.Pod] }

func (k *kept) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := k.pods.Get(ctx, key)
	return controller.Result{}, err
}

type parts struct {
	Control *controller.Controller[types.NamespacedName]
}

func newKept(k *kept) parts { return parts{controller.New("kept", k, controller.Options{})} }

type byLiteral struct{ pods *cache.Handle[*corev1.Pod] }

func (b *byLiteral) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := b.pods.Get(ctx, key)
	return controller.Result{}, err
}

func newByLiteral(b *byLiteral) func() *controller.Controller[types.NamespacedName] {
	return func() *controller.Controller[types.NamespacedName] {
		return controller.New("literal", b, controller.Options{})
	}
}

type inner struct{ pods *cache.Handle[*corev1.Pod] }

func (i *inner) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	_, err := i.pods.Get(ctx, key) // want `a Reconcile reads i.pods`
	return controller.Result{}, err
}

func newInner(i *inner, m *manager.Manager) { m.Add(makeInner(i)) }

func makeInner(i *inner) *controller.Controller[types.NamespacedName] {
	return controller.New("inner", i, controller.Options{})
}
