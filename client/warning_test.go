// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// warning is a server that warns of something in each answer to a get.
func warning(says func() string) *sim.Server {
	api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
	api.Intercept(func(r *sim.Request) (*http.Response, error) {
		if r.Verb != "get" {
			return nil, nil
		}
		resp, err := r.Send(`{"kind":"ConfigMap","apiVersion":"v1"}`)
		resp.Header.Add("Warning", fmt.Sprintf("%s %q", "299 -", says()))
		resp.Header.Add("Warning", `199 - "of a proxy"`)
		return resp, err
	})
	return api
}

func logger(to *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestWarnings(t *testing.T) {
	says := "it is deprecated"
	api := warning(func() string { return says })
	c, key := newClient(t, api, client.Options{}), name("default", "a")
	var log, std bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(logger(&std))
	ctx := logr.NewContextWithSlogLogger(t.Context(), logger(&log))
	for range 3 {
		_, _ = client.For[*corev1.ConfigMap](c).GetLive(ctx, key)
		_, _ = client.ForKind[*unstructured.Unstructured](c, corev1.SchemeGroupVersion.WithKind("ConfigMap")).GetLive(ctx, key)
		_, _ = client.For[*appsv1.Deployment](c).GetLive(ctx, key)
	}
	says = "unknown field"
	_, _ = client.For[*corev1.ConfigMap](c).GetLive(t.Context(), key)
	cs, err := kubernetes.NewForConfigAndClient(c.Config(), c.HTTPClient())
	testkit.NoError(t, err)
	for range 2 {
		_, _ = cs.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	}
	want := `level=WARN msg="warning from the API server" kind=ConfigMap apiVersion=v1 warning="it is deprecated"
level=WARN msg="warning from the API server" kind=Deployment apiVersion=apps/v1 warning="it is deprecated"
`
	testkit.Equal(t, log.String(), want)
	want = `level=WARN msg="warning from the API server" kind=ConfigMap apiVersion=v1 warning="unknown field"
level=WARN msg="warning from the API server" warning="unknown field"
`
	testkit.Equal(t, std.String(), want)
}

// TestWarningsEnd: an endless series of new warnings fills neither memory nor log.
func TestWarningsEnd(t *testing.T) {
	n := 0
	api := warning(func() string { n++; return fmt.Sprint("warning ", n) })
	maps := client.For[*corev1.ConfigMap](newClient(t, api, client.Options{}))
	var log bytes.Buffer
	ctx := logr.NewContextWithSlogLogger(t.Context(), logger(&log))
	for range 1200 {
		_, _ = maps.GetLive(ctx, name("default", "a"))
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 1001 || !strings.Contains(lines[1000], "further warnings of the API server are not logged") {
		t.Errorf("%d lines, the last one is %s", len(lines), lines[len(lines)-1])
	}
}

// TestOwnWarnings shows that a handler in the configuration is left in place.
func TestOwnWarnings(t *testing.T) {
	api := warning(func() string { return "x" })
	cfg, own := api.Config(), new(strings.Builder)
	cfg.WarningHandler = rest.NewWarningWriter(own, rest.WarningWriterOptions{})
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	var log bytes.Buffer
	_, _ = client.For[*corev1.ConfigMap](c).GetLive(logr.NewContextWithSlogLogger(t.Context(), logger(&log)), name("default", "a"))
	testkit.Equal(t, log.Len(), 0)
	testkit.Equal(t, own.String(), "Warning: x\n")
}
