// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// seen is a queue that counts what it sees.
type seen struct {
	Observer[types.NamespacedName]

	n int
}

func (s *seen) Observe(types.NamespacedName, handler.Event) (after func()) { s.n++; return nil }
func (s *seen) Dropped(string)                                             {}
func (s *seen) AddAll(_ []types.NamespacedName, _ workqueue.AddOptions)    {}

// TestDroppingDoesNotAllocate: most events are dropped, where predicates are used. An observer sees
// them all.
func TestDroppingDoesNotAllocate(t *testing.T) {
	for name, observing := range map[string]bool{"with an observer": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			q := &seen{}
			f := newFeed[*corev1.ConfigMap]("test", handler.Self(), []handler.Predicate{
				handler.GenerationChanged, handler.Where(func(_, _ *corev1.ConfigMap) bool { return false }),
			})
			testkit.NoError(t, f.begin(q))
			f.to.Queue = q
			if observing {
				f.identity, f.to.Observer = f.handler.(handler.Identity[types.NamespacedName]), q
			}
			events := f.informed(t.Context())
			object := func(version string) *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", ResourceVersion: version}}
			}
			before, after := object("1"), object("2")
			testkit.Equal(t, testing.AllocsPerRun(1000, func() { events.OnUpdate(before, after) }), 0, "allocations")
			testkit.Equal(t, q.n, map[bool]int{true: 1001}[observing])
			testkit.Equal(t, f.drops.snapshot()["where(*v1.ConfigMap)"], 1001)
		})
	}
}
