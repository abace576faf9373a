// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// BenchmarkCycle measures create, get, update and delete of one object with controller-runtime's
// client: on package sim, with JSON and protobuf, and on its own fake.
func BenchmarkCycle(b *testing.B) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	for _, kind := range []string{"", "application/vnd.kubernetes.protobuf"} {
		name := "sim-json"
		cfg := sim.NewServer(sim.ConfigMaps).Config()
		if cfg.ContentType = kind; kind != "" {
			name = "sim-protobuf"
		}
		b.Run(name, func(b *testing.B) {
			c, err := crclient.New(cfg, crclient.Options{Scheme: scheme.Scheme, Mapper: mapper})
			testkit.NoError(b, err)
			cycle(b, c)
		})
	}
	b.Run("fake", func(b *testing.B) { cycle(b, fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()) })
}

func cycle(b *testing.B, c crclient.Client) {
	b.Helper()
	b.ReportAllocs()
	ctx := b.Context()
	for b.Loop() {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"app": "a"}},
			Data:       map[string]string{"k": "v"},
		}
		if err := c.Create(ctx, m); err != nil {
			b.Fatal(err)
		}
		got := &corev1.ConfigMap{}
		if err := c.Get(ctx, crclient.ObjectKeyFromObject(m), got); err != nil {
			b.Fatal(err)
		}
		got.Data["k"] = "w"
		if err := c.Update(ctx, got); err != nil {
			b.Fatal(err)
		}
		if err := c.Delete(ctx, got); err != nil {
			b.Fatal(err)
		}
	}
}
