// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/cache"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/handler"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// gate blocks its handler for a while.
type gate struct{ shut *atomic.Bool }

func (g *gate) Keep(handler.Event) bool {
	for g.shut.Load() {
		time.Sleep(100 * time.Millisecond)
	}
	return true
}

func (g *gate) String() string { return "gate" }

// TestC6_S9_AnEventThatARestoreUndid: a key waits for the informer that it reads to pass an event
// of the watched one, and the API server is restored to before the event. The key does not wait for
// a version that never comes.
func TestC6_S9_AnEventThatARestoreUndid(t *testing.T) {
	for what, undone := range map[string]struct {
		event func(f *forms)
		sees  string
	}{
		"a create":   {func(f *forms) { f.put("new", "2") }, "new sees absent"},
		"an update":  {func(f *forms) { f.put("a", "2") }, "a sees 1"},
		"a deletion": {func(f *forms) { f.remove("a") }, "a sees 1"},
	} {
		for when, late := range map[string]bool{"": false, ", delivered after the restore": true} {
			t.Run(what+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newForms(t)
					f.o.ReadYourWrites = time.Hour
					var blocks atomic.Bool
					kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
					watched := cache.ForScope[*metav1.PartialObjectMetadata](f.watches, cache.Scope{Kind: kind})
					f.put("a", "1")
					f.start(self(watched, &gate{&blocks}), read(f, cache.For[*corev1.ConfigMap](f.reads)))
					backup := f.api.Backup()
					for range 20 {
						f.api.Put(sim.Secrets, &corev1.Secret{ObjectMeta: named("busy"), StringData: map[string]string{"at": time.Now().String()}})
						time.Sleep(time.Millisecond)
					}
					lag := f.lag(time.Hour)
					blocks.Store(late)
					undone.event(f)
					f.want(time.Second)
					backup.Restore()
					lag.Remove() // the next watches are in time
					time.Sleep(20 * time.Second)
					blocks.Store(false)
					time.Sleep(20 * time.Second)
					synctest.Wait()
					seen := f.take()
					if len(seen) == 0 || !strings.HasSuffix(strings.TrimSuffix(seen[len(seen)-1], " stale"), undone.sees) {
						t.Errorf("reconciled %q, not %q in the end", seen, undone.sees)
					}
					for _, a := range f.awaited {
						testkit.Equal(t, a.Expired, false, "it gave up")
						testkit.Equal(t, a.Doubts, nil, "it gave up")
					}
				})
			})
		}
	}
}
