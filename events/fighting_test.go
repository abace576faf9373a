// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// TestFailing_Fights: a fight is one event on the object, with the field and the other writer, and
// the next fight is another one.
func TestFailing_Fights(t *testing.T) {
	for _, every := range []time.Duration{100 * time.Millisecond, 4 * time.Second} {
		t.Run(every.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testFights(t, every) }) })
	}
}

func testFights(t *testing.T, every time.Duration) {
	api := sim.NewServer(sim.ConfigMaps, resource)
	defer api.Close()
	cfg := &rest.Config{Host: sim.Host, Transport: api, QPS: -1}
	m := manager.New(cfg, manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
	apply := func(ctx context.Context, by, value string) error {
		_, err := client.For[*corev1.ConfigMap](m.Client()).Apply(ctx, corev1ac.ConfigMap("a", "default").WithData(map[string]string{"value": value}), client.FieldOwner(by))
		return err
	}
	maps := cache.For[*corev1.ConfigMap](m.Cache())
	c := controller.New("website", events.Failing(controller.Func[types.NamespacedName](func(ctx context.Context, _ types.NamespacedName) (controller.Result, error) {
		return controller.Result{}, apply(ctx, "test", "mine")
	}), 10*time.Minute, maps, events.For(m, events.Options{})), controller.Options{})
	c.Watch(source.Kind(maps, handler.Self()))
	m.Add(c)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	events, err := eventsclient.NewForConfig(cfg)
	testkit.NoError(t, err)
	for fight := 1; fight <= 2; fight++ {
		for range 200 {
			testkit.NoError(t, apply(ctx, "other", "theirs"))
			time.Sleep(every)
		}
		time.Sleep(10 * time.Minute)
		list, err := events.Events("default").List(ctx, metav1.ListOptions{})
		testkit.NoError(t, err)
		n := 0
		for i := range list.Items {
			e := &list.Items[i]
			if n++; e.Series != nil {
				n += int(e.Series.Count) - 1
			}
			if e.Reason != "ReconcileFighting" || e.Type != "Warning" || e.Regarding.Name != "a" || !strings.Contains(e.Note, "this controller and the field manager other overwrite .data.value of configmaps default/a in turn") {
				t.Errorf("there is the Event %s of %s: %s", e.Reason, e.Regarding.Name, e.Note)
			}
		}
		testkit.Equal(t, n, fight, fmt.Sprintf("events after %d fights", fight))
	}
	stop()
	testkit.Equal(t, <-ended, nil)
}
