// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package pagetest_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
)

// hostile is a key that is HTML.
const hostile = "<img src=x onerror=document.title='owned'>"

// site is a server with the page of a manager that reconciles n ConfigMaps.
type site struct {
	*httptest.Server

	first, second manager.Controller
	down          atomic.Bool            // it answers no request
	group         atomic.Pointer[string] // what /debug/shards/ answers instead
}

func newSite(t *testing.T, n int, o debug.Options) *site {
	t.Helper()
	api := sim.NewServer(sim.ConfigMaps)
	t.Cleanup(api.Close)
	for i := range n {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("team-", string(rune('a'+i%7))), Name: fmt.Sprintf("shop-%05d", i)}}
		api.Put(sim.ConfigMaps, m)
	}
	m := manager.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, manager.Options{Name: "website-operator", Logger: slog.New(slog.DiscardHandler)})
	name := ""
	switch {
	case n >= 100:
		name = "hourly"
	case n > 0:
		name = hostile
	}
	over := make(chan struct{})
	s := &site{first: websites(m, over), second: backups(m, name)}
	m.Add(s.first)
	m.Add(s.second)
	h := debug.Handler(m, o)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			panic(http.ErrAbortHandler)
		}
		if g := s.group.Load(); g != nil && r.URL.Path == "/debug/shards/" {
			_, _ = w.Write([]byte(*g))
			return
		}
		h.ServeHTTP(w, r)
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		stop()
		close(over)
		testkit.Equal(t, <-ended, nil)
	})
	for begin := time.Now(); ; pause(t) {
		if r := s.first.Report(); r.Queue.Ready == 0 && int(r.Took.Count())+r.Progress.Running >= n && s.second.Report().Leading {
			return s
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("the keys are not reconciled: %+v", s.first.Report())
		}
	}
}

// websites fails for some keys, each time for the same reason. One key takes long.
func websites(m *manager.Manager, over <-chan struct{}) manager.Controller {
	maps := client.For[*corev1.ConfigMap](m.Client())
	c := controller.New("website", controller.Func[types.NamespacedName](func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		h := fnv.New32()
		_, _ = h.Write([]byte(key.String()))
		resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
		switch h.Sum32() % 50 {
		case 0, 1:
			return controller.Result{}, apierrors.NewForbidden(resource, key.Name, errors.New("the ServiceAccount website-operator cannot create deployments"))
		case 2:
			return controller.Result{}, apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, key.Name, nil)
		case 3:
			return controller.Result{}, controller.Terminal(errors.New("spec.host is used by another website"))
		case 4:
			return controller.Result{}, errors.New("dial tcp 10.0.0.7:443: connection refused")
		case 5, 6, 7, 8, 9, 10, 11, 12:
			return controller.Result{RequeueAfter: time.Hour}, nil
		case 13:
			if _, err := maps.GetLive(ctx, key); err != nil {
				return controller.Result{}, err
			}
			return controller.Result{RequeueAfter: 2 * time.Second}, nil
		}
		if key.Name == "shop-00042" {
			select {
			case <-ctx.Done():
			case <-over: // a stop gives it its grace time
			}
		}
		return controller.Result{}, nil
	}), controller.Options{Workers: 8})
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), handler.Self()))
	return c
}

// backups fails for one key, whose error is HTML if the key is. Its other key is paused.
func backups(m *manager.Manager, name string) manager.Controller {
	c := controller.New("backup", controller.Func[string](func(_ context.Context, key string) (controller.Result, error) {
		err := errors.New("the bucket is full")
		if key == hostile {
			err = errors.New("cannot write <b>backup</b>")
		}
		return controller.Result{}, controller.RetryAfter(err, time.Hour)
	}), controller.Options{Workers: 2})
	keys := handler.Func[string](func(_ context.Context, e handler.Event) ([]string, error) {
		switch e.Key().Name {
		case "shop-00001":
			return []string{name}, nil
		case "shop-00002":
			return []string{"nightly"}, nil
		}
		return nil, nil
	})
	if name != "" {
		c.PauseKey("nightly")
	}
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), keys))
	return c
}
