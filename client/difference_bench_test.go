// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// same answers patches always in the same way.
type same struct {
	body []byte
	next http.RoundTripper
}

func (s same) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPatch {
		return s.next.RoundTrip(req)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: -1, Body: io.NopCloser(bytes.NewReader(s.body)),
	}, nil
}

// BenchmarkPatchFrom is a patch of one label, and the answer.
func BenchmarkPatchFrom(b *testing.B) {
	meta := metav1.ObjectMeta{
		Namespace: "default", Name: "a", ResourceVersion: "1", UID: "u", Labels: map[string]string{"x": "1"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`)}},
	}
	b.Run("ConfigMap", func(b *testing.B) {
		benchPatch(b, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}})
	})
	b.Run("Deployment", func(b *testing.B) {
		d := replicas(3)
		benchPatch(b, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: d.Spec.Replicas,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b", Env: []corev1.EnvVar{{Name: "x", Value: "y"}}}}}},
		}})
	})
}

func benchPatch[T client.Object](b *testing.B, before T) {
	b.Helper()
	body, err := json.Marshal(before)
	testkit.NoError(b, err)
	cfg := sim.NewServer(sim.ConfigMaps, sim.Deployments).Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return same{body, next} })
	c, err := client.New(cfg, client.Options{})
	testkit.NoError(b, err)
	h := client.For[T](c)
	after, _ := before.DeepCopyObject().(T)
	after.SetLabels(map[string]string{"x": "2"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.PatchFrom(b.Context(), h, before, after); err != nil {
			b.Fatal(err)
		}
	}
}
