// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/owned"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/source"
	"github.com/setpoint-dev/setpoint/term"
)

// BenchmarkAudit measures one census of 100,000 objects, whose keys are all of this process. A
// controller makes one in 10 s, so the metric is the part of a core that the audit takes.
func BenchmarkAudit(b *testing.B) {
	const objects = 100_000
	for name, storage := range map[string]cache.Storage{"packed": cache.Packed, "decoded": cache.Decoded} {
		b.Run(name, func(b *testing.B) {
			api := sim.NewServer(sim.ConfigMaps)
			for i := range objects {
				api.Put(sim.ConfigMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: "tenant-" + strconv.Itoa(i%100), Name: "web-" + strconv.Itoa(i), Labels: map[string]string{"app": "web"},
				}, Data: map[string]string{"index.html": "<html>Hello.</html>"}})
			}
			cl, err := client.New(api.Config(), client.Options{})
			if err != nil {
				b.Fatal(err)
			}
			objects := cache.New(cl, cache.Options{Storage: storage})
			c := controller.New("bench", controller.Func[types.NamespacedName](func(context.Context, types.NamespacedName) (controller.Result, error) {
				return controller.Result{}, nil
			}), controller.Options{Logger: silent})
			all := owned.New(shard.ByKey().Slot)
			c.Divide(all)
			for slot := range owned.Count {
				all.Adopt(&owned.Adoption{Slot: uint8(slot), Term: term.New(term.Token{}, time.Now(), time.Hour)})
			}
			c.Watch(source.Kind(cache.For[*corev1.ConfigMap](objects), handler.Self()))
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 2)
			go func() { ended <- objects.Run(ctx) }()
			go func() { ended <- c.Warm(ctx) }()
			if err := c.CatchUp(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if n := c.Census(ctx); n != owned.MostSampled {
					b.Fatalf("the census has %d keys", n)
				}
			}
			b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N)/10, "%core")
			stop()
			for range cap(ended) {
				if err := <-ended; err != nil {
					b.Error(err)
				}
			}
		})
	}
}
