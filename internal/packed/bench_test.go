// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// BenchmarkRead compares a read of a packed Pod with a copy, as of-a-copy, and its event with a
// decode, as of-a-decode.
func BenchmarkRead(b *testing.B) {
	p := pod()
	for _, name := range []string{"web", "sidecar"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: name, Image: "example.com/team/" + name + ":v1.2.3", Args: []string{"--port=8080", "--verbose"},
			Env: []corev1.EnvVar{{Name: "A", Value: "some value"}, {Name: "B", Value: "another value"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: true, Image: "example.com/team/" + name})
	}
	for name, f := range map[string]wire.Format{"protobuf": wire.Protobuf, "JSON": wire.JSON} {
		var data []byte
		b.Run(name+"/read", func(b *testing.B) {
			data = encode(b, f, p)
			o, err := read(pods(), f, data)
			testkit.NoError(b, err)
			copying, decoding := against(b, func() { p.DeepCopyObject() }, func() { _, _ = o.Decode() })
			b.ReportMetric(decoding/copying, "of-a-copy")
		})
		b.Run(name+"/event", func(b *testing.B) {
			c := pods()
			decoding, packing := against(b, func() { var p corev1.Pod; _ = decodeInto(f, data, &p) }, func() { _, _ = c.Read(f, data) })
			b.ReportMetric(packing/decoding, "of-a-decode")
		})
	}
}

// against runs two functions in turns, and returns their times.
func against(b *testing.B, one, other func()) (first, second float64) {
	const turn = 100
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		for range turn {
			one()
		}
		middle := time.Now()
		for range turn {
			other()
		}
		first, second = first+middle.Sub(begin).Seconds(), second+time.Since(middle).Seconds()
	}
	return first, second
}
