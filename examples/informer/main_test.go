// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/cache/factory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestInformer_ReportsWhatTheWatchBrings sends events through a watch reactor. It runs in a bubble:
// the 30 seconds until the resync pass at once.
func TestInformer_ReportsWhatTheWatchBrings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clientset, watcher := fake.NewClientset(), watch.NewFake()
		clientset.PrependWatchReactor("configmaps", k8stesting.DefaultWatchReactor(watcher, nil))
		c := cache.New(nil, cache.Options{}) // without a Backend the factory uses the clientset
		var out strings.Builder
		if err := report(factory.New(c, clientset), &out); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- c.Run(ctx) }()
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := out.String(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			out.Reset()
		}
		expect("")
		watcher.Add(configMap("a", "1"))
		expect("add default/a, the namespace has 1\n")
		watcher.Add(configMap("b", "2"))
		expect("add default/b, the namespace has 2\n")
		watcher.Delete(configMap("b", "3"))
		expect("delete default/b, the namespace has 1\n")
		watcher.Modify(configMap("a", "4"))
		expect("update default/a, the namespace has 1\n")
		time.Sleep(32 * time.Second)
		expect("resync default/a, the namespace has 1\n")

		stop()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: version}}
}
