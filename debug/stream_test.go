// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package debug_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/debug"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// follow requests the stream until ctx ends.
func follow(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/stream", http.NoBody))
	return w
}

func events(w *httptest.ResponseRecorder, name string) int {
	return strings.Count(w.Body.String(), "event: "+name+"\n")
}

// TestStream_OneEventASecond: a page gets at most one change a second, and else a sign of life.
func TestStream_OneEventASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		busy := debug.Stream(func() []byte { n++; return fmt.Appendf(nil, "%d", n) })
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		w := follow(ctx, busy)
		testkit.Equal(t, events(w, "summary"), 10)
		testkit.Equal(t, events(w, "alive"), 0)
		if h := w.Header(); h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || !w.Flushed {
			t.Errorf("the headers are %v", h)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 61*time.Second)
		defer cancel()
		w = follow(ctx, debug.Stream(func() []byte { return []byte("{}") }))
		testkit.Equal(t, events(w, "summary"), 1)
		testkit.Equal(t, events(w, "alive"), 4)
	})
}

// TestStream_EndsByItself: a page must be authorized again after 10 minutes.
func TestStream_EndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		follow(t.Context(), debug.Stream(func() []byte { return []byte("{}") }))
		testkit.Equal(t, time.Since(began), 10*time.Minute, "it ends after")
	})
}

// TestStream_Limit: the 17th page gets a sentence, and a place when another page has left.
func TestStream_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := debug.Stream(func() []byte { return []byte("{}") })
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan int, 16)
		for range 16 {
			go func() { ended <- follow(ctx, h).Code }()
		}
		synctest.Wait()
		if w := follow(t.Context(), h); w.Code != http.StatusServiceUnavailable || w.Body.String() != "16 pages are open, the limit; close one\n" || w.Header().Get("Retry-After") == "" {
			t.Errorf("the 17th page gets %d %s", w.Code, w.Body)
		}
		leave()
		for range 16 {
			testkit.Equal(t, <-ended, http.StatusOK, "status")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Equal(t, follow(ctx, h).Code, http.StatusOK, "after the pages have left")
	})
}

// open opens the stream of a server and reads the first event.
func open(t *testing.T, url string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/debug/stream", http.NoBody)
	testkit.NoError(t, err)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	testkit.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	testkit.Equal(t, line, "event: summary\n", err)
	return resp
}

// TestStream_EndsWithItsClientAndItsServer: no stream outlives its page or a stop.
func TestStream_EndsWithItsClientAndItsServer(t *testing.T) {
	left := make(chan struct{}, 2)
	h := debug.Handler(newManager(t, nil), debug.Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		left <- struct{}{}
	}))
	defer s.Close()
	_ = open(t, s.URL).Body.Close()
	<-left
	resp := open(t, s.URL)
	defer func() { _ = resp.Body.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	testkit.NoError(t, s.Config.Shutdown(ctx), "a stop waits for a page")
	<-left
}

// TestStream_DoesNotDelayAStop: a manager's stop with an open page takes no grace time, also on a
// server whose requests may continue during a stop.
func TestStream_DoesNotDelayAStop(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	m := newManager(t, nil)
	server.Add(m, server.Options{Plain: true, Listener: l}).Handle("/debug/", debug.Handler(m, debug.Options{}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	resp := open(t, "http://"+l.Addr().String())
	defer func() { _ = resp.Body.Close() }()
	began := time.Now()
	stop()
	testkit.Equal(t, <-ended, nil)
	testkit.AtMost(t, time.Since(began), 10*time.Second)
}

// TestStream_Summary: it has numbers for each controller, and no keys except the longest running.
func TestStream_Summary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps)
		defer api.Close()
		for i := range 50 {
			api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("shop-", i)}})
		}
		m := newManager(t, api)
		failingMaps(m, "website")
		maps := client.For[*corev1.ConfigMap](m.Client())
		busy := controller.New("busy", controller.Func[string](func(ctx context.Context, _ string) (controller.Result, error) {
			time.Sleep(100 * time.Millisecond)
			for range 3 {
				if _, err := maps.GetLive(ctx, types.NamespacedName{Namespace: "default", Name: "shop-1"}); err != nil {
					return controller.Result{}, err
				}
			}
			return controller.Result{RequeueAfter: 400 * time.Millisecond}, nil
		}), controller.Options{})
		m.Add(busy)
		busy.Queue().Add("always")
		idle := controller.New("paused", controller.Func[string](func(context.Context, string) (r controller.Result, err error) { return r, nil }), controller.Options{})
		idle.Pause()
		idle.Queue().AddWith("a", workqueue.AddOptions{Class: workqueue.Interactive})
		idle.Queue().AddWith("b", workqueue.AddOptions{Class: workqueue.Background})
		m.Add(idle)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(10 * time.Second)
		watching, leave := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer leave()
		text := follow(watching, debug.Handler(m, debug.Options{})).Body.String()
		testkit.NotContains(t, text, "<b>")
		testkit.NotContains(t, text, "shop-")
		var got struct {
			Name        string
			Controllers []struct {
				Name             string
				Kinds            []string
				Leading          bool
				Waiting, Workers int
				Rate, Asks, P50  *float64
				Reconciles       int
				Requests         int
				Classes          map[string]int
				Failing          map[string]int
			}
		}
		all := strings.Split(strings.TrimSpace(text), "data: ")
		if err := json.Unmarshal([]byte(all[len(all)-1]), &got); err != nil || got.Name != "test" || len(got.Controllers) != 3 {
			t.Fatalf("%v in\n%s", err, text)
		}
		if c := got.Controllers[0]; c.Rate == nil || *c.Rate < 1.5 || *c.Rate > 2.5 || *c.Asks < 3*1.5 || *c.Asks > 3*2.5 || *c.P50 < 75 || *c.P50 > 130 || c.Requests != 3*c.Reconciles {
			t.Errorf("two Reconciles a second, of 100ms and 3 requests each: %s", text)
		}
		testkit.Equal(t, fmt.Sprint(got.Controllers[1].Classes), "map[background:1 interactive:1]", "ready by class")
		c := got.Controllers[2]
		if c.Name != "website" || !c.Leading || c.Waiting != 50 || c.Workers == 0 || c.Reconciles != 50 || c.Failing["Error"] != 50 || c.Rate == nil || *c.Rate != 0 || c.P50 != nil || c.Requests != 0 || len(c.Classes) != 0 || fmt.Sprint(c.Kinds) != "[ConfigMap.v1]" {
			t.Errorf("the controller is %+v", c)
		}
		stop()
		testkit.Equal(t, <-ended, nil)
	})
}
