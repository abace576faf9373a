// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/finalizer"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/source"
)

// TestChain_ShowsWhichStepHangs: of three steps the second hangs. A person sees it in the object
// and in the state. When it is released, the object goes.
func TestChain_ShowsWhichStepHangs(t *testing.T) {
	cluster, err := envtest.Start(t.Context(), envtest.Options{})
	testkit.NoError(t, err)
	defer func() {
		testkit.Equal(t, cluster.Stop(), nil)
	}()
	c, err := client.New(cluster.Config(), client.Options{})
	testkit.NoError(t, err)
	defer c.Close()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	all := cache.New(c, cache.Options{})
	maps, direct := cache.For[*corev1.ConfigMap](all), client.For[*corev1.ConfigMap](c)

	ensured, hanging, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	release, order := make(chan struct{}), []string{}
	step := func(name string, run func(context.Context) error) finalizer.Step[*corev1.ConfigMap] {
		return finalizer.Step[*corev1.ConfigMap]{Finalizer: name, Run: func(ctx context.Context, _ *corev1.ConfigMap) error {
			order = append(order, name)
			return run(ctx)
		}}
	}
	done := func(context.Context) error { return nil }
	hang := func(ctx context.Context) error {
		close(hanging)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	chain, err := finalizer.NewChain(direct, step(first, done), step(second, hang), step(third, done))
	testkit.NoError(t, err)
	isEnsured := sync.OnceFunc(func() { close(ensured) })
	reconcile := controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		m, err := maps.Get(ctx, key)
		switch {
		case apierrors.IsNotFound(err) || key != page:
			return controller.Result{}, nil
		case err != nil:
			return controller.Result{}, err
		case m.DeletionTimestamp != nil:
			return controller.Result{}, chain.Finalize(ctx, m)
		}
		if _, err = chain.Ensure(ctx, m); err == nil {
			isEnsured()
		}
		return controller.Result{}, err
	})
	ctrl := controller.New("page", reconcile, controller.Options{})
	ctrl.Watch(source.Kind(maps, handler.Self()))
	if _, err := maps.Subscribe(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if m, ok := obj.(*corev1.ConfigMap); ok && m.Name == page.Name {
			close(gone)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = all.Run(ctx) })
	running.Go(func() { _ = ctrl.Run(ctx) })
	defer running.Wait()
	defer stop()
	until := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatal("never", what)
		}
	}

	testkit.NoError(t, testkit.Err(direct.Create(ctx, configMap())))
	until("ensured", ensured)
	testkit.NoError(t, direct.Delete(ctx, page))
	until("hanging", hanging)
	live, err := direct.GetLive(ctx, page)
	if err != nil || !slices.Equal(live.Finalizers, []string{second, third}) {
		t.Errorf("%v, %v", live, err)
	}
	if s := chain.State(live); s.Finalizer != second || !s.Running || s.Since.IsZero() || !slices.Equal(s.Left, []string{second, third}) {
		t.Errorf("the state is %s", s)
	}
	close(release)
	until("gone", gone)
	stop()
	running.Wait()
	testkit.SlicesEqual(t, order, []string{first, second, third}, "the steps ran in the order")
}
