// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/envtest/sim"
)

// TestV4_RulesWorkInABubbleInVirtualTime applies the effects of rules to requests of client-go.
func TestV4_RulesWorkInABubbleInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps)
		defer server.Close()
		cfg := config(server, false)
		maps := coreclient.NewForConfigOrDie(cfg).ConfigMaps("default")
		others := coreclient.NewForConfigOrDie(server.Config()).ConfigMaps("default")
		create := func(name string) error {
			_, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{})
			return err
		}
		with := func(r fault.Rule, test func(f *fault.Fault)) {
			t.Helper()
			f := server.Add(r)
			test(f)
			f.Remove()
			if f.Hits() == 0 {
				t.Errorf("no request matched %+v", r)
			}
		}
		with(fault.Rule{Match: fault.Match{Config: cfg}, Refuse: apierrors.NewTooManyRequests("slow down", 0)}, func(*fault.Fault) {
			if err := create("refused"); !apierrors.IsTooManyRequests(err) {
				t.Errorf("refused: %v", err)
			}
			if _, err := others.List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Errorf("the other client: %v", err)
			}
		})
		with(fault.Rule{Delay: 3 * time.Hour}, func(*fault.Fault) {
			began := time.Now()
			if err := create("delayed"); err != nil || time.Since(began) != 3*time.Hour {
				t.Errorf("delayed by %v: %v", time.Since(began), err)
			}
		})
		with(fault.Rule{Lose: true}, func(*fault.Fault) {
			if err := create("lost"); !utilnet.IsConnectionReset(err) || server.Object(sim.ConfigMaps, "default", "lost") == nil {
				t.Errorf("lost: %v", err)
			}
		})
		with(fault.Rule{Cut: true}, func(*fault.Fault) {
			if err := create("cut"); !utilnet.IsConnectionReset(err) || server.Object(sim.ConfigMaps, "default", "cut") != nil {
				t.Errorf("cut: %v", err)
			}
		})
		with(fault.Rule{Hold: true}, func(f *fault.Fault) {
			result := make(chan error)
			go func() { result <- create("held") }()
			if err := f.WaitHeld(t.Context(), 1); err != nil || server.Object(sim.ConfigMaps, "default", "held") != nil {
				t.Errorf("held: %v", err)
			}
			f.Release()
			if err := <-result; err != nil {
				t.Errorf("released: %v", err)
			}
		})
		with(fault.Rule{Hang: true}, func(*fault.Fault) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := maps.Get(ctx, "held", metav1.GetOptions{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("hung: %v", err)
			}
		})
		with(fault.Rule{Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
			body, err := io.ReadAll(h.Body)
			h.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(body), "source", "target")))
			if err != nil {
				return nil, err
			}
			return next.RoundTrip(h)
		}}, func(*fault.Fault) {
			if err := create("source"); err != nil || server.Object(sim.ConfigMaps, "default", "target") == nil {
				t.Errorf("changed: %v", err)
			}
		})
		if f := server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"no such verb"}}, Cut: true}); create("unmatched") != nil || f.Hits() != 0 {
			t.Errorf("a rule with an unknown verb matched %d requests", f.Hits())
		}
	})
}

// TestV4_RulesDelayFreezeAndCutWatches shows the effects on the answers of open watches.
func TestV4_RulesDelayFreezeAndCutWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps)
		defer server.Close()
		maps := coreclient.NewForConfigOrDie(config(server, false)).ConfigMaps("default")
		w := must[watch.Interface](t)(maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: server.Version()}))
		defer w.Stop()
		expect := func(name string, after time.Duration) {
			t.Helper()
			began := time.Now()
			if e := <-w.ResultChan(); e.Object.(*corev1.ConfigMap).Name != name || time.Since(began) != after {
				t.Errorf("%v after %s, want %s after %s", e, time.Since(began), name, after)
			}
		}
		watches := fault.Match{Verbs: []string{"watch"}}
		lag := server.Add(fault.Rule{Match: watches, Lag: time.Hour})
		server.Put(sim.ConfigMaps, configMap("a"))
		time.Sleep(time.Minute)
		server.Put(sim.ConfigMaps, configMap("b"))
		expect("a", time.Hour-time.Minute)
		expect("b", time.Minute)
		lag.Remove()
		freeze := server.Add(fault.Rule{Match: watches, Freeze: true})
		server.Put(sim.ConfigMaps, configMap("c"))
		if err := freeze.WaitHeld(t.Context(), 1); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Errorf("%v got through", e)
		default:
		}
		freeze.Remove()
		expect("c", 0)
		if n := server.Cut(watches); n != 1 {
			t.Errorf("%d watches were cut", n)
		}
		if e, open := <-w.ResultChan(); open {
			t.Errorf("a watch that was cut sends %v", e)
		}
		if n := server.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
	})
}

// TestV3_CloseEndsWatchesAndHeldRequests shows that nothing of a server outlives Close.
func TestV3_CloseEndsWatchesAndHeldRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps)
		maps := coreclient.NewForConfigOrDie(config(server, false)).ConfigMaps("default")
		w := must[watch.Interface](t)(maps.Watch(t.Context(), metav1.ListOptions{}))
		server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Freeze: true})
		held := server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create"}}, Hold: true, Deliver: true})
		result := make(chan error)
		go func() {
			_, err := maps.Create(t.Context(), configMap("held"), metav1.CreateOptions{})
			result <- err
		}()
		if err := held.WaitHeld(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		server.Close()
		if err := <-result; err == nil || server.Object(sim.ConfigMaps, "default", "held") != nil {
			t.Errorf("a held request ends with %v", err)
		}
		if e, open := <-w.ResultChan(); open && e.Type != watch.Error {
			t.Errorf("a watch ends with %v", e)
		}
		if n := server.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		_, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		if err == nil || !strings.Contains(err.Error(), "sim: GET /api/v1/namespaces/default/configmaps/a: the server is closed") {
			t.Errorf("a request after Close ends with %v", err)
		}
	})
}

// TestV4_AServerFromOutsideOfTheBubbleFails would hang otherwise: its watches block for real.
func TestV4_AServerFromOutsideOfTheBubbleFails(t *testing.T) {
	outside := sim.NewServer(sim.ConfigMaps)
	defer outside.Close()
	synctest.Test(t, func(t *testing.T) {
		maps := coreclient.NewForConfigOrDie(outside.Config()).ConfigMaps("default")
		_, err := maps.Watch(t.Context(), metav1.ListOptions{})
		const want = "sim: GET /api/v1/namespaces/default/configmaps: the server was created outside of the synctest bubble"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v", err)
		}
	})
	if _, err := coreclient.NewForConfigOrDie(outside.Config()).ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("outside of the bubble: %v", err)
	}
}

// client-go closes idle connections when an informer stops, and warns about other transports.
func TestServer_IsATransportForClientGo(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer func() {
		klog.SetOutput(io.Discard)
		klog.LogToStderr(true)
	}()
	utilnet.CloseIdleConnectionsFor(sim.NewServer().Config().Transport)
	klog.Flush()
	if log.Len() > 0 {
		t.Errorf("client-go warns: %s", log.String())
	}
}
