// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkHandled is what each event handler of a subscription costs more, so that CatchUp can know what it was told of.
func BenchmarkHandled(b *testing.B) {
	const n = 100_000
	objects := make([]*corev1.Pod, n)
	for i := range objects {
		objects[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprintf("6f1c2d3e-0000-4000-8000-%012d", i)), ResourceVersion: fmt.Sprint(1_000_000 + i),
		}}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := newHandled(maphash.MakeSeed())
	for _, o := range objects {
		h.note(nil, o)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		o := objects[i%n]
		h.note(o, o)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/object")
	runtime.KeepAlive(h)
}
