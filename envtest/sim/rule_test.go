// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
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
	"github.com/setpoint-dev/setpoint/internal/testkit"
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
			testkit.NotEqual(t, f.Hits(), 0, r)
		}
		with(fault.Rule{Match: fault.Match{Config: cfg}, Refuse: apierrors.NewTooManyRequests("slow down", 0)}, func(*fault.Fault) {
			testkit.ErrorSatisfies(t, create("refused"), apierrors.IsTooManyRequests)
			testkit.NoError(t, testkit.Err(others.List(t.Context(), metav1.ListOptions{})), "the other client")
		})
		with(fault.Rule{Delay: 3 * time.Hour}, func(*fault.Fault) {
			began := time.Now()
			testkit.NoError(t, create("delayed"))
			testkit.Equal(t, time.Since(began), 3*time.Hour)
		})
		with(fault.Rule{Lose: true}, func(*fault.Fault) {
			testkit.ErrorSatisfies(t, create("lost"), utilnet.IsConnectionReset)
			testkit.NotEqual(t, server.Object(sim.ConfigMaps, "default", "lost"), nil)
		})
		with(fault.Rule{Cut: true}, func(*fault.Fault) {
			testkit.ErrorSatisfies(t, create("cut"), utilnet.IsConnectionReset)
			testkit.Equal(t, server.Object(sim.ConfigMaps, "default", "cut"), nil)
		})
		with(fault.Rule{Hold: true}, func(f *fault.Fault) {
			result := make(chan error)
			go func() { result <- create("held") }()
			testkit.Equal(t, f.WaitHeld(t.Context(), 1), nil)
			testkit.Equal(t, server.Object(sim.ConfigMaps, "default", "held"), nil)
			f.Release()
			testkit.NoError(t, <-result, "released")
		})
		with(fault.Rule{Hang: true}, func(*fault.Fault) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			testkit.ErrorIs(t, testkit.Err(maps.Get(ctx, "held", metav1.GetOptions{})), context.DeadlineExceeded, "hung")
		})
		with(fault.Rule{Change: func(h *http.Request, next http.RoundTripper) (*http.Response, error) {
			body, err := io.ReadAll(h.Body)
			h.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(body), "source", "target")))
			if err != nil {
				return nil, err
			}
			return next.RoundTrip(h)
		}}, func(*fault.Fault) {
			testkit.NoError(t, create("source"))
			testkit.NotEqual(t, server.Object(sim.ConfigMaps, "default", "target"), nil)
		})
		f := server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"no such verb"}}, Cut: true})
		testkit.NoError(t, create("unmatched"))
		testkit.Equal(t, f.Hits(), 0, "a rule with an unknown verb")
	})
}

// TestV4_RulesDelayFreezeAndCutWatches shows the effects on the answers of open watches.
func TestV4_RulesDelayFreezeAndCutWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps)
		defer server.Close()
		maps := coreclient.NewForConfigOrDie(config(server, false)).ConfigMaps("default")
		w := testkit.Must(maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: server.Version()}))
		defer w.Stop()
		expect := func(name string, after time.Duration) {
			t.Helper()
			began := time.Now()
			testkit.Equal(t, (<-w.ResultChan()).Object.(*corev1.ConfigMap).Name, name)
			testkit.Equal(t, time.Since(began), after)
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
		testkit.Equal(t, freeze.WaitHeld(t.Context(), 1), nil)
		synctest.Wait()
		select {
		case e := <-w.ResultChan():
			t.Errorf("%v got through", e)
		default:
		}
		freeze.Remove()
		expect("c", 0)
		testkit.Equal(t, server.Cut(watches), 1)
		_, open := <-w.ResultChan()
		testkit.Equal(t, open, false, "a watch that was cut")
		testkit.Equal(t, server.Watches(), 0)
	})
}

// TestV3_CloseEndsWatchesAndHeldRequests shows that nothing of a server outlives Close.
func TestV3_CloseEndsWatchesAndHeldRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sim.NewServer(sim.ConfigMaps)
		maps := coreclient.NewForConfigOrDie(config(server, false)).ConfigMaps("default")
		w := testkit.Must(maps.Watch(t.Context(), metav1.ListOptions{}))
		server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"watch"}}, Freeze: true})
		held := server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"create"}}, Hold: true, Deliver: true})
		result := make(chan error)
		go func() {
			_, err := maps.Create(t.Context(), configMap("held"), metav1.CreateOptions{})
			result <- err
		}()
		testkit.NoError(t, held.WaitHeld(t.Context(), 1))
		server.Close()
		testkit.NotEqual(t, <-result, nil, "a held request")
		testkit.Equal(t, server.Object(sim.ConfigMaps, "default", "held"), nil)
		if e, open := <-w.ResultChan(); open && e.Type != watch.Error {
			t.Errorf("a watch ends with %v", e)
		}
		testkit.Equal(t, server.Watches(), 0)
		_, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
		testkit.ErrorContains(t, err, "sim: GET /api/v1/namespaces/default/configmaps/a: the server is closed")
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
		testkit.ErrorContains(t, err, want)
	})
	_, err := coreclient.NewForConfigOrDie(outside.Config()).ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	testkit.NoError(t, err, "outside of the bubble")
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
	testkit.Equal(t, log.String(), "")
}
