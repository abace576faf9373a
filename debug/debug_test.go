// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/why"
)

// newManager makes a manager for a simulated API server, which may be nil.
func newManager(t *testing.T, api *sim.Server) *manager.Manager {
	t.Helper()
	if api == nil {
		api = sim.NewServer(sim.ConfigMaps)
		t.Cleanup(api.Close)
	}
	return manager.New(&rest.Config{Host: sim.Host, Transport: api, QPS: -1}, manager.Options{Name: "test", Logger: slog.New(slog.DiscardHandler)})
}

// failingMaps is a controller of ConfigMaps that fails for each.
func failingMaps(m *manager.Manager, name string) {
	c := controller.New(name, controller.Func[string](func(context.Context, string) (controller.Result, error) {
		return controller.Result{}, controller.RetryAfter(errors.New("cannot apply <b>"), time.Hour)
	}), controller.Options{})
	keys := handler.Func[string](func(_ context.Context, e handler.Event) ([]string, error) {
		return []string{"<script>" + e.Key().Name}, nil
	})
	c.Watch(source.Kind(cache.For[*corev1.ConfigMap](m.Cache()), keys))
	m.Add(c)
}

// TestHandler_SeesControllersAddedLater also finds no content of objects and no HTML in any page.
func TestHandler_SeesControllersAddedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		defer api.Close()
		api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}, Data: map[string]string{"password": "hunter2"}})
		m := newManager(t, api)
		failingMaps(m, "early")
		h := debug.Handler(m, debug.Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(time.Second)
		failingMaps(m, "late")
		time.Sleep(time.Second)
		synctest.Wait()

		for path, want := range map[string]string{
			"/debug/failing?controller=late":                        `"key": "\u003cscript\u003eshop"`,
			"/debug/failing?reason=Error":                           `"total": 2`,
			"/debug/controllers/":                                   `"late"`,
			"/debug/controllers/late":                               `"Name": "late"`,
			"/debug/informers/":                                     `"Kind": "ConfigMap.v1"`,
			"/debug/shards/":                                        `[]`,
			"/debug/why?kind=<script>&name=shop":                    `\u003cscript\u003e`,
			"/debug/why?kind=ConfigMap&namespace=default&name=shop": `"kind": "ConfigMap"`,
		} {
			w := get(t, h, "GET", path)
			body := w.Body.String()
			testkit.Equal(t, w.Code, http.StatusOK, path)
			testkit.Contains(t, body, want, path)
			testkit.Equal(t, json.Valid(w.Body.Bytes()), true, path, body)
			testkit.Equal(t, w.Header().Get("Content-Type"), "application/json", path)
			testkit.Equal(t, w.Header().Get("X-Content-Type-Options"), "nosniff", path)
			for _, never := range []string{"<", "hunter2", "password"} {
				testkit.NotContains(t, body, never, fmt.Sprintf("%s has %q", path, never))
			}
		}
		testkit.Contains(t, get(t, h, "GET", "/debug/pprof/").Body.String(), "\nheap\n", "the profiles")
		stop()
		testkit.Equal(t, <-ended, nil)
	})
}

// explains answers with the object's name.
type explains struct{}

func (explains) Watches() []string { return nil }

func (explains) Explain(_ context.Context, o why.Object) []why.Answer {
	return []why.Answer{{Reason: why.Done, Cause: "all is well with " + o.String()}}
}

func TestWhy(t *testing.T) {
	w := get(t, debug.Why(explains{}), "GET", "/?kind=Website&namespace=default&name=%3Cb%3E")
	var got why.Answers
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Object != (why.Object{Kind: "Website", Namespace: "default", Name: "<b>"}) {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if len(got.Answers) != 1 || got.Answers[0].Cause != "all is well with Website default/<b>" || strings.Contains(w.Body.String(), "<b>") {
		t.Errorf("got %s", w.Body)
	}
}

// TestAdd_RefusesOtherMachines: only loopback addresses have a server without authorization.
func TestAdd_RefusesOtherMachines(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, address := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "localhost.example.com:6060", "operator:6060"} {
		m := newManager(t, nil)
		debug.Add(m, debug.Options{Address: address})
		want := `the manager "test" cannot run: the debug server: debug.Options.Address: ` + address + " is no loopback address, and the debug server authorizes no one; " +
			"use localhost:6060, or pass debug.Handler to Authorize of a server of server.Add"
		testkit.Equal(t, fmt.Sprint(m.Run(stopped)), want, address)
	}
	for _, address := range []string{"", "localhost:0", "LocalHost:0", "127.0.0.1:0", "127.1.2.3:0"} {
		m := newManager(t, nil)
		debug.Add(m, debug.Options{Address: address})
		testkit.Equal(t, m.Run(stopped), nil, address)
	}
}

// TestAdd_ServesLocalHostsOnly: a web page whose host name resolves to this machine gets nothing.
func TestAdd_ServesLocalHostsOnly(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	address := l.Addr().String()
	_ = l.Close()
	m := newManager(t, nil)
	debug.Add(m, debug.Options{Address: address})
	serves := make(chan struct{})
	m.AddEverywhere("servers start first", func(context.Context) error { close(serves); return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	select {
	case <-serves:
	case err := <-ended:
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, host := range []string{"localhost:6060", "localhost", "127.0.0.1:6060", "[::1]:6060", "[::1]", "evil.example.com:6060", "localhost.example.com", "10.0.0.1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/debug/failing", http.NoBody)
		testkit.NoError(t, err)
		r.Host = host
		resp, err := c.Do(r)
		testkit.NoError(t, err)
		_ = resp.Body.Close()
		want := http.StatusOK
		if slices.Contains([]string{"evil.example.com:6060", "localhost.example.com", "10.0.0.1"}, host) {
			want = http.StatusForbidden
		}
		testkit.Equal(t, resp.StatusCode, want, host)
	}
	stop()
	testkit.Equal(t, <-ended, nil)
}
