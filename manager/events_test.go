// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/fakeapi"
	"github.com/setpoint-dev/setpoint/manager"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var eventsResource = fakeapi.Resource{Group: "events.k8s.io", Version: "v1", Kind: "Event", Name: "events", Namespaced: true}

// recording adds a controller with one Reconcile, which records events until a stop and after it.
func recording(m *manager.Manager, stop *func()) {
	configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		for range 1000 {
			m.Recorder().Event(ctx, obj, events.Warning, "Failed", "Apply", "before the stop")
		}
		time.Sleep(time.Minute)
		(*stop)()
		m.Recorder().Event(ctx, obj, events.Warning, "Failed", "Apply", "before the stop")
		m.Recorder().Event(ctx, obj, events.Normal, "Interrupted", "Apply", "the last words")
		return controller.Result{}, nil
	})
}

// TestV3_EventsComeBeforeTheRelease: the events of a Reconcile's last moment are stored before the
// Lease is released, with a strict client. Those of other functions are stored before Run returns.
func TestV3_EventsComeBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New(fakeapi.ConfigMaps, fakeapi.Leases, eventsResource)
		put(api, "a")
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.Strict = true
		})
		stop := func() {}
		recording(m, &stop)
		m.AddEverywhere("janitor", func(ctx context.Context) error {
			<-ctx.Done()
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
			m.Recorder().Event(ctx, obj, events.Normal, "Stopped", "", "the janitor has stopped")
			return nil
		})
		stop, result := start(t, m)
		ok(t, result())
		var writes []string
		for _, r := range api.Requests() {
			if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Verb != "discover" {
				writes = append(writes, r.Verb+" "+r.Resource.Name)
			}
		}
		release := len(writes) - 2
		if want := []string{"update leases", "create events"}; !slices.Equal(writes[release:], want) {
			t.Errorf("the writes are %q; the last should be %q", writes, want)
		}
		if got := writes[release-2 : release]; !slices.Contains(got, "create events") || !slices.Contains(got, "patch events") {
			t.Errorf("before the Lease is released, the writes are %q", got)
		}
		if holder(api) != "" {
			t.Errorf("the Lease is held by %q", holder(api))
		}
		if n := api.Stored(eventsResource); n != 3 {
			t.Errorf("there are %d Events", n)
		}
	})
}

// TestV3_WithoutLeaderElection: nothing is lost at a stop. A service account without the right to
// write events delays no stop.
func TestV3_WithoutLeaderElection(t *testing.T) {
	for name, forbidden := range map[string]bool{"allowed": false, "forbidden": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fakeapi.New(fakeapi.ConfigMaps, eventsResource)
				put(api, "a")
				api.Intercept(func(r *fakeapi.Request) (*http.Response, error) {
					if forbidden && r.Resource.Name == eventsResource.Name {
						return r.Fail(http.StatusForbidden, "no right to write events")
					}
					return nil, nil
				})
				m := newManager(api, nil)
				stop := func() {}
				recording(m, &stop)
				began := time.Now()
				stop, result := start(t, m)
				ok(t, result())
				if took := time.Since(began); took != time.Minute {
					t.Errorf("the stop took %s", took-time.Minute)
				}
				want := 2
				if forbidden {
					want = 0
				}
				if n := api.Stored(eventsResource); n != want {
					t.Errorf("there are %d Events, want %d", n, want)
				}
			})
		})
	}
}

// TestM3_EventsThatCannotBeSent: they delay a stop by the grace time at most.
func TestM3_EventsThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New(fakeapi.ConfigMaps, eventsResource)
		put(api, "a")
		api.Intercept(func(r *fakeapi.Request) (*http.Response, error) {
			if r.Resource.Name == eventsResource.Name {
				return r.Hang()
			}
			return nil, nil
		})
		m := newManager(api, nil)
		stop := func() {}
		recording(m, &stop)
		began := time.Now()
		stop, result := start(t, m)
		ok(t, result())
		if took := time.Since(began) - time.Minute; took > 26*time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}

// TestRecorder_NamesTheReplica: as in the Lease, so that both can be compared.
func TestRecorder_NamesTheReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New(fakeapi.Leases, eventsResource)
		m := newManager(api, elected)
		m.AddLeaderOnly("once", func(ctx context.Context) error {
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
			m.Recorder().Event(ctx, obj, events.Normal, "Leading", "", "by %s", holder(api))
			<-ctx.Done()
			return nil
		})
		stop, result := start(t, m)
		pass(time.Minute)
		stop()
		ok(t, result())
		for _, r := range api.Requests() {
			if r.Verb != "create" || r.Resource.Name != eventsResource.Name {
				continue
			}
			e := api.Object(eventsResource, "default", r.Name).Object
			if e["reportingController"] != "test" || !strings.HasSuffix(e["note"].(string), e["reportingInstance"].(string)) {
				t.Errorf("the Event is %v", e)
			}
			return
		}
		t.Error("there is no Event")
	})
}
