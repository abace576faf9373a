// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// busy answers each request with a status code and a Retry-After.
type busy struct {
	code        int
	asks        string
	contentType string
	body        string
	requests    int
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	b.requests++
	header := http.Header{"Content-Type": []string{b.contentType}}
	if b.asks != "" {
		header.Set("Retry-After", b.asks)
	}
	return &http.Response{
		StatusCode: b.code, Status: http.StatusText(b.code), Header: header, Request: r,
		Body: io.NopCloser(strings.NewReader(b.body)), ContentLength: int64(len(b.body)),
	}, nil
}

func (b *busy) CloseIdleConnections() {}

const (
	asText   = "Too many requests, please try again later.\n"
	asStatus = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"message":"later",` +
		`"details":{"retryAfterSeconds":3600}}`
)

// TestALongRetryAfterIsNotWaitedFor: client-go sleeps only for a short one. The error has the time.
func TestALongRetryAfterIsNotWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		code     int
		asks     string
		body     string
		seconds  int // in the error
		took     time.Duration
		requests int
	}{
		"an hour":            {429, "3600", asText, 3600, 0, 1},
		"an hour, 503":       {503, "3600", asText, 3600, 0, 1},
		"an hour, 500":       {500, "3600", asText, 3600, 0, 1},
		"an hour, no body":   {429, "3600", "", 3600, 0, 1},
		"an hour, a Status":  {429, "3600", asStatus, 3600, 0, 1},
		"two seconds":        {429, "2", asText, 2, 0, 1},
		"one second":         {429, "1", asText, 1, 10 * time.Second, 11},
		"none":               {429, "", asText, 0, 0, 1},
		"negative":           {429, "-1", asText, 0, 0, 1},
		"very negative":      {429, "-99999999999999999999", asText, 0, 0, 1},
		"too large":          {429, "99999999999999999999", asText, 1<<31 - 1, 0, 1},
		"too large for 32 b": {429, "4294967297", asText, 1<<31 - 1, 0, 1},
		"garbage":            {429, "soon", asText, 0, 0, 1},
		"a date":             {503, "Sat, 01 Jan 2000 01:00:00 GMT", asText, 3600, 0, 1},
		"a date in the past": {503, "Fri, 31 Dec 1999 23:00:00 GMT", asText, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01
				b := &busy{code: test.code, asks: test.asks, contentType: "text/plain; charset=utf-8", body: test.body}
				if test.body == asStatus {
					b.contentType = "application/json"
				}
				c, err := client.New(&rest.Config{Host: "http://server:8080", Transport: b}, client.Options{})
				testkit.NoError(t, err)
				defer c.Close()
				typed := kubernetes.NewForConfigOrDie(c.Config())
				began := time.Now()
				_, err = typed.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
				got, _ := apierrors.SuggestsClientDelay(err)
				testkit.Equal(t, got, test.seconds, "the seconds that the error suggests", err)
				testkit.Equal(t, time.Since(began), test.took, "the request took")
				testkit.Equal(t, b.requests, test.requests)
			})
		})
	}
}

// TestNoClientWaitsForALongRetryAfter: whatever is built from the configuration, and each kind of
// request.
func TestNoClientWaitsForALongRetryAfter(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, cfg *rest.Config) error{
		"get": func(ctx context.Context, cfg *rest.Config) error {
			_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
			return err
		},
		"watch": func(ctx context.Context, cfg *rest.Config) error {
			_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
			return err
		},
		"logs": func(ctx context.Context, cfg *rest.Config) error {
			_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default").GetLogs("a", &corev1.PodLogOptions{}).Stream(ctx)
			return err
		},
		"raw": func(ctx context.Context, cfg *rest.Config) error {
			_, err := kubernetes.NewForConfigOrDie(cfg).Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
			return err
		},
		"dynamic": func(ctx context.Context, cfg *rest.Config) error {
			_, err := dynamic.NewForConfigOrDie(cfg).Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(ctx, metav1.ListOptions{})
			return err
		},
		"metadata": func(ctx context.Context, cfg *rest.Config) error {
			_, err := metadata.NewForConfigOrDie(cfg).Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(ctx, metav1.ListOptions{})
			return err
		},
		"discovery": func(_ context.Context, cfg *rest.Config) error {
			_, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerVersion()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &busy{code: http.StatusServiceUnavailable, asks: "3600", contentType: "text/html", body: "<html>down</html>"}
				c, err := client.New(&rest.Config{Host: "http://server:8080", Transport: b}, client.Options{})
				testkit.NoError(t, err)
				defer c.Close()
				began := time.Now()
				err = do(t.Context(), c.Config())
				if seconds, _ := apierrors.SuggestsClientDelay(err); seconds != 3600 || !apierrors.IsServiceUnavailable(err) {
					t.Errorf("the error is %v, with %d s", err, seconds)
				}
				testkit.Equal(t, time.Since(began), 0)
			})
		})
	}
}

// TestALongRetryAfterStaysReadable: a caller of the HTTP client sees the time at any moment.
func TestALongRetryAfterStaysReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{code: http.StatusTooManyRequests, asks: "3600", body: asText}
		c, err := client.New(&rest.Config{Host: "http://server:8080", Transport: b}, client.Options{})
		testkit.NoError(t, err)
		defer c.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server:8080/api", http.NoBody)
		testkit.NoError(t, err)
		resp, err := c.HTTPClient().Do(req)
		testkit.NoError(t, err)
		defer resp.Body.Close()
		testkit.Equal(t, time.Until(testkit.Must(http.ParseTime(resp.Header.Get("Retry-After")))), time.Hour, "before the body is read")
		body, err := io.ReadAll(resp.Body)
		testkit.NoError(t, err)
		testkit.Equal(t, string(body), asText)
		testkit.Equal(t, resp.Header.Get("Retry-After"), "3600")
	})
}
