// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package contexts

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/ledger"
)

type reconciler struct {
	ctx    context.Context
	given  context.Context // from other packages
	inside context.Context
	maps   *client.Handle[*corev1.ConfigMap]
	writer client.Writer[*corev1.ConfigMap]
	cached *cache.Handle[*corev1.ConfigMap]
}

func newReconciler(ctx context.Context) *reconciler { return &reconciler{ctx: ctx} }

func (r *reconciler) Reconcile(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
	m := &corev1.ConfigMap{}
	_, _ = r.maps.Create(context.Background(), m)                      // want `context.Background\(\) in a Reconcile; use ctx`
	within, cancel := context.WithTimeout(context.TODO(), time.Second) // want `context.TODO\(\) in a Reconcile; use ctx`
	defer cancel()
	_, _ = r.maps.Create(within, m) // reported above
	derived, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = r.maps.Create(derived, m)
	_, _ = r.maps.Create(context.WithoutCancel(ctx), m)
	_, _ = r.maps.Create(r.ctx, m) // want `Create in a Reconcile with a context that is not derived from the Reconcile's`
	_, _ = r.maps.Create(r.given, m)
	_, _, _ = client.CreateOrUpdate(r.ctx, r.maps, m, nil) // want `CreateOrUpdate in a Reconcile with a context that is not derived`
	_, _ = r.cached.Get(ctx, key)
	_, _ = r.cached.Get(r.ctx, key) // want `Get in a Reconcile with a context that is not derived`
	r.inside = ctx
	_, _ = r.maps.Create(r.inside, m)
	_ = r.writer.Delete(global, key) // want `Delete in a Reconcile with a context that is not derived`
	_, _ = r.maps.Create(ledger.Without(context.Background()), m)
	go func() {
		_, _ = r.maps.Create(context.Background(), m) // want `context.Background\(\) in a Reconcile; use its context ctx, context.WithoutCancel\(ctx\) to clean up after its end, or ledger.Without\(ctx\) for work that outlives the Reconcile`
	}()
	defer r.cleanup(context.Background()) // want `use its context ctx, context.WithoutCancel`
	var either context.Context
	if key.Name == "" {
		either = ctx
	} else {
		either = r.ctx
	}
	_, _ = r.maps.Create(either, m)
	for range r.maps.ListLive(ctx, client.ListOptions{}) {
		_, _ = r.maps.Create(context.Background(), m) // want `context.Background\(\) in a Reconcile; use ctx`
	}
	r.without(m)
	r.replaced(ctx, m)
	r.shadowed(ctx, m)
	return controller.Result{}, r.unnamed(ctx, m)
}

var global = context.Background()

func (r *reconciler) cleanup(ctx context.Context) {}

// without is called by the Reconcile, and has no context.
func (r *reconciler) without(m *corev1.ConfigMap) {
	_, _ = r.maps.Create(context.Background(), m) // want `Create in a Reconcile with a context that is not derived`
	_ = context.Background()
}

func (r *reconciler) replaced(ctx context.Context, m *corev1.ConfigMap) {
	ctx = context.Background() // want `context.Background\(\) replaces the context of a Reconcile; remove the assignment`
	_, _ = r.maps.Create(ctx, m)
}

func (r *reconciler) shadowed(ctx context.Context, m *corev1.ConfigMap) {
	if ctx := m.Name; ctx != "" {
		_, _ = r.maps.Create(context.Background(), m) // want `use its context ctx, context.WithoutCancel`
	}
}

func (r *reconciler) unnamed(_ context.Context, m *corev1.ConfigMap) error {
	_, err := r.maps.Create(context.Background(), m) // want `whose context has no name; name it ctx, and use it`
	return err
}

// unrelated is not called by a Reconcile.
func (r *reconciler) unrelated(ctx context.Context, m *corev1.ConfigMap) {
	_, _ = r.maps.Create(context.Background(), m)
}

func literal(ctx context.Context, maps *client.Handle[*corev1.ConfigMap]) {
	_ = controller.New("literal", controller.Func[string](func(_ context.Context, key string) (controller.Result, error) {
		_, err := maps.Create(ctx, &corev1.ConfigMap{}) // want `Create in a Reconcile with a context that is not derived`
		return controller.Result{}, err
	}), controller.Options{})
	_ = controller.New("method", controller.Func[string]((&byMethod{maps}).do), controller.Options{})
}

type byMethod struct {
	maps *client.Handle[*corev1.ConfigMap]
}

func (b *byMethod) do(ctx context.Context, key string) (controller.Result, error) {
	_, err := b.maps.Create(context.Background(), &corev1.ConfigMap{}) // want `context.Background\(\) in a Reconcile; use ctx`
	return controller.Result{}, err
}

type step func(ctx context.Context, m *corev1.ConfigMap) (controller.Result, error)

// steps are called through values.
func (b *byMethod) steps() []step { return []step{b.first} }

func (b *byMethod) first(ctx context.Context, m *corev1.ConfigMap) (controller.Result, error) {
	_, err := b.maps.Create(context.Background(), m) // want `context.Background\(\) in a Reconcile; use ctx`
	return controller.Result{}, err
}
