// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/setpoint-dev/setpoint/envtest"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	webappv1 "my.domain/guestbook/api/v1"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, webappv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func adminOf(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: schemeOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a replica until the test ends, or stop is called.
func start(t *testing.T, cfg *rest.Config, elect bool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, cfg, options{metricsAddr: "0", probeAddr: "0", leaderElect: elect, namespace: "default"})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Log(err) // controller-runtime's error if a Reconcile was cut off
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually calls f until it returns nil, for up to a minute.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func newBook(name string) *webappv1.Guestbook {
	return &webappv1.Guestbook{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: webappv1.GuestbookSpec{Title: "Hello", Replicas: 2},
	}
}

func TestGuestbook_Simulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.New(t, schemeOf(t))
		start(t, server.Config(), true)
		checkGuestbook(t, adminOf(t, server.Config()))
	})
}

func TestGuestbook_RealAPIServer(t *testing.T) {
	if os.Getenv("SETPOINT_FULL") == "" {
		t.Skip("set SETPOINT_FULL=1")
	}
	cluster, err := envtest.Start(t.Context(), envtest.Options{CRDs: []string{"../config/crd"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	start(t, cluster.Config(), true)
	checkGuestbook(t, adminOf(t, cluster.Config()))
}

func checkGuestbook(t *testing.T, admin client.Client) {
	t.Helper()
	book := newBook("visitors")
	if err := admin.Create(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	isAvailable := func(want metav1.ConditionStatus, message string) {
		t.Helper()
		eventually(t, func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(book), book); err != nil {
				return err
			}
			c := meta.FindStatusCondition(book.Status.Conditions, "Available")
			if c == nil || c.Status != want || c.Message != message || c.ObservedGeneration != book.Generation {
				return fmt.Errorf("the condition is %+v", c)
			}
			return nil
		})
	}
	isAvailable("False", "0 of 2 servers are available")
	var deployment appsv1.Deployment
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(book), &deployment); err != nil {
		t.Fatal(err)
	}
	deployment.Status.Replicas, deployment.Status.ReadyReplicas, deployment.Status.AvailableReplicas = 2, 2, 2
	if err := admin.Status().Update(t.Context(), &deployment); err != nil {
		t.Fatal(err)
	}
	isAvailable("True", "2 of 2 servers are available")
	book.Spec.Title, book.Spec.Replicas = "Welcome", 3
	if err := admin.Update(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	isAvailable("False", "2 of 3 servers are available")
	var config corev1.ConfigMap
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(book), &deployment); err != nil || *deployment.Spec.Replicas != 3 {
		t.Errorf("the Deployment is %+v: %v", deployment.Spec, err)
	}
	key := client.ObjectKey{Namespace: "default", Name: deployment.Spec.Template.Spec.Volumes[0].ConfigMap.Name}
	if err := admin.Get(t.Context(), key, &config); err != nil || config.Data["title"] != "Welcome" || !metav1.IsControlledBy(&config, book) {
		t.Errorf("the ConfigMap is %+v: %v", config, err)
	}
}

// TestMeasure prints what a step gains.
func TestMeasure(t *testing.T) {
	synctest.Test(t, lateWatches)
	synctest.Test(t, handOver)
}

// lateWatches edits 20 Guestbooks before the watches show what was created for them.
func lateWatches(t *testing.T) {
	server := sim.New(t, schemeOf(t))
	server.Lag(500 * time.Millisecond)
	own := fault.Match{Verbs: []string{"create", "update"}, Resources: []string{"configmaps", "deployments", "guestbooks/status", "secrets"}}
	var writes, refused atomic.Int64
	server.Add(fault.Rule{Match: own, Change: func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if writes.Add(1); err == nil && answer.StatusCode >= http.StatusBadRequest {
			refused.Add(1)
		}
		return answer, err
	}})
	start(t, server.Config(), false)
	admin := adminOf(t, server.Config())
	for n := range 20 {
		book := newBook(fmt.Sprint("book-", n))
		if err := admin.Create(t.Context(), book); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		edit := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"title":"Welcome"}}`))
		if err := admin.Patch(t.Context(), book, edit); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	t.Logf("20 Guestbooks, watches 500 ms late: %d ConfigMaps, %d Secrets, %d of %d writes refused",
		server.Stored(sim.ConfigMaps), server.Stored(sim.Secrets), refused.Load(), writes.Load())
}

// handOver stops the leader while it creates a Deployment, which takes 5 s.
func handOver(t *testing.T) {
	server := sim.New(t, schemeOf(t))
	admin := adminOf(t, server.Config())
	stop := start(t, server.Config(), true)
	time.Sleep(time.Minute)
	start(t, server.Config(), true)
	time.Sleep(time.Minute)
	server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create"}, Resources: []string{"deployments"}}, Times: 1, Delay: 5 * time.Second})
	book := newBook("visitors")
	if err := admin.Create(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	began := time.Now()
	stop()
	took := time.Since(began)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(book), book); err != nil {
		t.Fatal(err)
	}
	whole := len(book.Status.Conditions) > 0
	other := newBook("other")
	if err := admin.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return admin.Get(t.Context(), client.ObjectKeyFromObject(other), &appsv1.Deployment{}) })
	t.Logf("a stop took %.1f s, its Reconcile finished: %t, the next leader worked %.1f s after the stop began", took.Seconds(), whole, time.Since(began).Seconds())
}
