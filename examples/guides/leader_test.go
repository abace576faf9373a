// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/workqueue"
)

func nothing(context.Context, types.NamespacedName) (controller.Result, error) {
	return controller.Result{}, nil
}

// TestLeases_RunInOneProcess runs the programs of docs/high-availability.md: with a Lease of the
// manager, and with client-go's elector.
func TestLeases_RunInOneProcess(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	led := make(chan string, 10)
	announce := func(ctx context.Context) error {
		led <- "the manager"
		<-ctx.Done()
		return nil
	}
	sites := byNamespace(controller.Func[types.NamespacedName](nothing))
	billing := controller.New("billing", controller.Func[types.NamespacedName](nothing), controller.Options{})
	cfg := cluster.Config()
	mgr := manager.New(cfg, manager.Options{
		Name:           "website-operator",
		LeaderElection: &leaderelection.Options{Lease: "website-operator", Namespace: "default"},
	})
	_ = twoLeases(cfg, sites, billing, announce) // it has no namespace outside a Pod
	mgr.AddLeaderOnly("announce", announce)
	stop := run(t, mgr)
	<-led
	stop()

	maps := admin(t, cluster)
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "color"}}); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: "default", Name: "color"}
	c, err := client.New(cfg, client.Options{FieldOwner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	paint := controller.New("paint", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		defer func() { led <- "client-go" }()
		return controller.Result{}, namingTheWriter(ctx, c, key)
	}), controller.Options{})
	paint.Queue().AddWith(key, workqueue.AddOptions{})
	clientset, err := kubernetes.NewForConfigAndClient(c.Config(), c.HTTPClient())
	if err != nil {
		t.Fatal(err)
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "paint"}, Client: clientset.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "paint-1"},
	}
	leading, end := context.WithCancel(ctx)
	warm, elected := make(chan error, 1), make(chan error, 1)
	go func() { warm <- paint.Warm(leading) }()
	go func() {
		elected <- ownElector(leading, lock, clientgo.LeaderElectionConfig{
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
		}, paint)
	}()
	<-led
	end()
	if err := <-elected; err != nil {
		t.Error(err)
	}
	if err := <-warm; err != nil {
		t.Error(err)
	}
	got, err := maps.GetLive(ctx, key)
	if err != nil || got.Annotations["setpoint.dev/holder"] != "paint-1" {
		t.Errorf("the ConfigMap is %v, error: %v", got, err)
	}
}

// TestOperations_ServesStateAndProbes runs the program of docs/operations.md, on free ports.
func TestOperations_ServesStateAndProbes(t *testing.T) {
	cluster := startCluster(t)
	mgr, err := operations(cluster.Config(), controller.Func[types.NamespacedName](nothing), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	_ = mgr // it listens on fixed ports
	l, err := server.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	probed := manager.New(cluster.Config(), manager.Options{Name: "probed"})
	server.AddHealth(probed, server.Options{Listener: l})
	probed.AddReadyzCheck("license", func(context.Context) error { return fmt.Errorf("the license has expired") })
	stop := run(t, probed)
	defer stop()
	if err := probed.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get("http://" + l.Addr().String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "[-]license failed: the license has expired") {
		t.Errorf("status %d, error %v:\n%s", answer.StatusCode, err, body)
	}
}

// TestBatches_CreatesAsManyJobsAsWanted runs the Reconcile of docs/reconciling.md.
func TestBatches_CreatesAsManyJobsAsWanted(t *testing.T) {
	ctx := t.Context()
	cluster := startCluster(t)
	mgr := manager.New(cluster.Config(), manager.Options{Name: "batches"})
	r := &batches{
		wanted: cache.For[*corev1.ConfigMap](mgr.Cache()),
		jobs:   cache.For[*batchv1.Job](mgr.Cache()),
		client: mgr.Client(),
		next: func(batch *corev1.ConfigMap, number int) *batchv1.Job {
			pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "job", Image: "job:1"}}}
			return &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: batch.Namespace, Name: fmt.Sprintf("%s-%d", batch.Name, number),
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(batch, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
				},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}},
			}
		},
	}
	c := controller.New("batches", r, controller.Options{})
	c.Watch(source.Kind(r.wanted, handler.Self(), handler.Where(func(old, new *corev1.ConfigMap) bool { return new != nil && new.Data["jobs"] != "" })))
	c.Watch(source.Kind(r.jobs, handler.Owner(r.wanted)))
	mgr.Add(c)
	defer run(t, mgr)()
	batch := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "batch"}, Data: map[string]string{"jobs": "3"}}
	if _, err := admin(t, cluster).Create(ctx, batch); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Idle(ctx); err != nil {
		t.Fatal(err)
	}
	jobs, err := client.Collect(client.For[*batchv1.Job](mgr.Client()).ListLive(ctx, client.ListOptions{Namespace: "default"}))
	if err != nil || len(jobs) != 3 {
		t.Errorf("%d jobs, error: %v", len(jobs), err)
	}
}
