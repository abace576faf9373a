// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// recorded records the headers of each request.
type recorded struct {
	rest    http.RoundTripper
	headers []string
}

func (s *recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	s.headers = append(s.headers, req.Method+" "+req.Header.Get("Accept")+" "+req.Header.Get("Content-Type"))
	return s.rest.RoundTrip(req)
}

// TestRESTClient_NeverAsksForCBOR: client-go's gates for CBOR change no request.
func TestRESTClient_NeverAsksForCBOR(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	featurestesting.SetFeatureDuringTest(t, features.ClientsPreferCBOR, true)
	api := sim.NewServer(sim.ConfigMaps, sim.Deployments)
	cfg, seen := api.Config(), &recorded{}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { seen.rest = rt; return seen })
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(t, err)
	ctx, kind := t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	maps := client.ForKind[*unstructured.Unstructured](c, kind)
	u := &unstructured.Unstructured{}
	u.SetNamespace("default")
	u.SetName("m")
	created, err := maps.Create(ctx, u)
	testkit.NoError(t, err)
	_, updated := maps.Update(ctx, created)
	dynamic, err := c.Dynamic()
	testkit.NoError(t, err)
	resource := dynamic.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
	_, got := resource.Get(ctx, "m", metav1.GetOptions{})
	_, listed := resource.List(ctx, metav1.ListOptions{})
	_, typed := client.For[*corev1.ConfigMap](c).GetLive(ctx, name("default", "m"))
	// A kind that is not in the scheme is read in JSON.
	custom, err := c.RESTClient(corev1.SchemeGroupVersion.WithKind("Custom"))
	testkit.NoError(t, err)
	decoded := custom.Get().AbsPath("/api/v1/namespaces/default/configmaps/m").Do(ctx).Error()
	testkit.Equal(t, errors.Join(updated, got, listed, typed, decoded), nil)
	for _, header := range seen.headers {
		testkit.NotContains(t, header, "cbor")
		testkit.Contains(t, header, runtime.ContentTypeJSON)
	}
	testkit.AtLeast(t, len(seen.headers), 6)
}

// TestNew_OverATransportInUse: the Hook of a client over another one's transport gets nothing of
// the other one's requests.
func TestNew_OverATransportInUse(t *testing.T) {
	var own, foreign atomic.Int32
	on := func(n *atomic.Int32) client.Options {
		return client.Options{Hook: hook.On(func(*hook.APIAnswer) { n.Add(1) })}
	}
	api := sim.NewServer(sim.ConfigMaps)
	first := newClient(t, api, on(&own))
	for range 3 {
		c, err := client.New(&rest.Config{Host: sim.Host, Transport: first.HTTPClient().Transport}, on(&foreign))
		testkit.NoError(t, err)
		c.Close()
	}
	_ = client.For[*corev1.ConfigMap](first).Delete(t.Context(), name("default", "a"))
	testkit.NotEqual(t, own.Load(), 0)
	testkit.Equal(t, foreign.Load(), 0)
}
