// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package factory_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/source"
)

// A controller runs on a fake clientset, without a server. A watch reactor sends the events.
func ExampleNew_watchReactor() {
	clientset, watcher := fake.NewClientset(), watch.NewFake()
	clientset.PrependWatchReactor("pods", k8stesting.DefaultWatchReactor(watcher, nil))

	c := cache.New(nil, cache.Options{}) // without a Backend the factory uses the clientset
	pods := cache.Adopt[*corev1.Pod](c, factory.New(c, clientset).Core().V1().Pods().Informer(), cache.AdoptOptions{})
	reconciled := make(chan string)
	r := controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		pod, err := pods.Get(ctx, key)
		switch {
		case apierrors.IsNotFound(err):
			reconciled <- key.String() + " is gone"
			return controller.Result{}, nil
		case err != nil:
			return controller.Result{}, err
		}
		reconciled <- fmt.Sprint(key, " is ", pod.Status.Phase)
		return controller.Result{}, nil
	})
	ctl := controller.New("pods", r, controller.Options{Logger: slog.New(slog.DiscardHandler)})
	ctl.Watch(source.Kind(pods, handler.Self()))

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	running.Go(func() { _ = ctl.Run(ctx) })

	web := metav1.ObjectMeta{Namespace: "default", Name: "web", ResourceVersion: "1"}
	watcher.Add(&corev1.Pod{ObjectMeta: web, Status: corev1.PodStatus{Phase: corev1.PodPending}})
	fmt.Println(<-reconciled)
	web.ResourceVersion = "2"
	watcher.Modify(&corev1.Pod{ObjectMeta: web, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	fmt.Println(<-reconciled)
	watcher.Delete(&corev1.Pod{ObjectMeta: web})
	fmt.Println(<-reconciled)

	stop()
	running.Wait()
	// Output:
	// default/web is Pending
	// default/web is Running
	// default/web is gone
}
