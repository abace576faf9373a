// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

var eventsResource = sim.Resource{Group: "events.k8s.io", Version: "v1", Kind: "Event", Name: "events", Namespaced: true}

// recording adds a controller with one Reconcile, which records events until it stops the
// manager, and after that.
func recording(m *manager.Manager, stop <-chan func()) *events.Recorder {
	rec := events.For(m, events.Options{})
	configMaps(m, "website", func(ctx context.Context, key types.NamespacedName) (controller.Result, error) {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		for range 60 { // more than the limit for one object
			rec.Eventf(ctx, obj, events.Warning, "Failed", "Apply", "before the stop")
			time.Sleep(time.Second)
		}
		(<-stop)()
		rec.Eventf(ctx, obj, events.Warning, "Failed", "Apply", "before the stop")
		rec.Eventf(ctx, obj, events.Normal, "Interrupted", "Apply", "the last words")
		return controller.Result{}, nil
	})
	return rec
}

func eventsOf(t *testing.T, api *sim.Server) []eventsv1.Event {
	t.Helper()
	api.Intercept(nil)
	c, err := eventsclient.NewForConfig(config(api))
	ok(t, err)
	list, err := c.Events("default").List(t.Context(), metav1.ListOptions{})
	ok(t, err)
	return list.Items
}

// wantEvents compares the counts of the Events by note.
func wantEvents(t *testing.T, api *sim.Server, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for _, e := range eventsOf(t, api) {
		got[e.Note] = 1
		if e.Series != nil {
			got[e.Note] = int(e.Series.Count)
		}
	}
	testkit.DeepEqual(t, got, want)
}

// TestN3_EventsComeBeforeTheRelease: the events of a Reconcile's last moment are stored before the
// Lease is released, with a strict client. Events of other functions are stored before Run
// returns.
func TestN3_EventsComeBeforeTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, sim.Leases, eventsResource)
		put(api, "a")
		m := newManager(api, func(o *manager.Options) {
			elected(o)
			o.RequireTerm = true
		})
		stop := make(chan func(), 1)
		rec := recording(m, stop)
		m.AddEverywhere("janitor", func(ctx context.Context) error {
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
			for range 50 { // more than the limit for one object
				rec.Eventf(ctx, obj, events.Normal, "Cleaned", "", "cleaned up")
				time.Sleep(time.Second)
			}
			return nil
		})
		end, result := start(t, m)
		stop <- end
		ok(t, result())
		var writes []string
		for _, r := range api.Requests() {
			if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Verb != "discover" {
				writes = append(writes, r.Verb+" "+r.Resource.Resource)
			}
		}
		release := len(writes) - 2
		testkit.SlicesEqual(t, writes[release:], []string{"update leases", "patch events"}, "the last writes")
		testkit.Equal(t, holder(api), "", "the Lease is held by")
		wantEvents(t, api, map[string]int{"before the stop": 61, "the last words": 1, "cleaned up": 50})
	})
}

// TestN3_WithoutLeaderElection: nothing is lost at a stop. A service account without the right to
// write events delays no stop.
func TestN3_WithoutLeaderElection(t *testing.T) {
	for name, forbidden := range map[string]bool{"allowed": false, "forbidden": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.ConfigMaps, eventsResource)
				put(api, "a")
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if forbidden && r.Resource.Resource == eventsResource.Name {
						return r.Fail(http.StatusForbidden, "no right to write events")
					}
					return nil, nil
				})
				m := newManager(api, nil)
				stop := make(chan func(), 1)
				recording(m, stop)
				began := time.Now()
				end, result := start(t, m)
				stop <- end
				ok(t, result())
				testkit.Equal(t, time.Since(began), time.Minute)
				if forbidden {
					wantEvents(t, api, map[string]int{})
				} else {
					wantEvents(t, api, map[string]int{"before the stop": 61, "the last words": 1})
				}
			})
		})
	}
}

// TestM3_EventsThatCannotBeSent: they delay a stop by the grace time at most.
func TestM3_EventsThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.ConfigMaps, eventsResource)
		put(api, "a")
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if r.Resource.Resource == eventsResource.Name {
				return r.Hang()
			}
			return nil, nil
		})
		m := newManager(api, nil)
		stop := make(chan func(), 1)
		recording(m, stop)
		began := time.Now()
		end, result := start(t, m)
		stop <- end
		ok(t, result())
		testkit.AtMost(t, time.Since(began)-time.Minute, 26*time.Second)
	})
}

// TestRecorder_NamesTheReplica: as in the Lease, so that both can be compared.
func TestRecorder_NamesTheReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases, eventsResource)
		m := newManager(api, elected)
		rec := events.For(m, events.Options{})
		m.AddLeaderOnly("once", func(ctx context.Context) error {
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}
			rec.Eventf(ctx, obj, events.Normal, "Leading", "", "by %s", holder(api))
			<-ctx.Done()
			return nil
		})
		stop, result := start(t, m)
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
		found := eventsOf(t, api)
		if len(found) == 0 {
			t.Fatal("there is no Event")
		}
		if e := found[0]; e.ReportingController != "test" || e.ReportingInstance == "" || e.Note != "by "+e.ReportingInstance {
			t.Errorf("the Event is %+v", e)
		}
	})
}
