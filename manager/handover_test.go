// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/hook"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/manager"
)

// eventsFail is how an API server fails the writes of events.
var eventsFail = map[string]func(*sim.Request) (*http.Response, error){
	"500": func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusInternalServerError, "broken") },
	"429 with Retry-After": func(r *sim.Request) (*http.Response, error) {
		return r.FailWith(metav1.Status{
			Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 3600},
		})
	},
	"refuses":   (*sim.Request).Refuse,
	"forbidden": func(r *sim.Request) (*http.Response, error) { return r.Fail(http.StatusForbidden, "no right") },
	"hangs":     (*sim.Request).Hang,
}

// replicas are two replicas that record an event at the start and at the end of their terms.
type replicas struct {
	t        *testing.T
	api      *sim.Server
	repeats  int // of the last event at the start, one a second
	stopping atomic.Bool

	mu      sync.Mutex // guards what follows
	began   map[string]time.Time
	dropped map[string]int // events by reason
}

// start starts a replica.
func (r *replicas) start(name string, over http.RoundTripper) (stop func(), result func() error) {
	m := newManager(over, func(o *manager.Options) {
		elected(o)
		o.RequireTerm = true
		leaseIn(o).Identity = name
		o.Hook = hook.On(func(e *hook.EventDropped) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.dropped[e.Why] += e.Events
		})
	})
	rec := events.For(m, events.Options{})
	m.AddLeaderOnly("leads", func(ctx context.Context) error {
		r.mu.Lock()
		r.began[name] = time.Now()
		r.mu.Unlock()
		obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		rec.Eventf(ctx, obj, events.Normal, "Leads", "", "the first words")
		for range r.repeats {
			if ctx.Err() != nil {
				break
			}
			rec.Eventf(ctx, obj, events.Normal, "Stops", "", "the last words")
			time.Sleep(time.Second)
		}
		<-ctx.Done()
		rec.Eventf(ctx, obj, events.Normal, "Stops", "", "the last words")
		return nil
	})
	return start(r.t, m)
}

// TestN3_FailingEventsDelayNoHandover: the Lease is released after 2 seconds. The events that wait
// are stored when the API server takes them again, or dropped and counted at the end.
func TestN3_FailingEventsDelayNoHandover(t *testing.T) {
	for how, fail := range eventsFail {
		for _, recovers := range []bool{true, false} {
			t.Run(how+map[bool]string{true: ", and recovers"}[recovers], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.Leases, eventsResource)
					r := &replicas{t: t, api: api, began: map[string]time.Time{}, dropped: map[string]int{}}
					stopA, resultA := r.start("a", api)
					testkit.Pass(time.Second)
					stopB, resultB := r.start("b", api)
					testkit.Pass(time.Minute)
					api.Intercept(func(q *sim.Request) (*http.Response, error) {
						if q.Resource.Resource == eventsResource.Name {
							return fail(q)
						}
						return nil, nil
					})
					stopped := time.Now()
					stopA()
					testkit.Pass(5 * time.Second)
					r.wantHandover(stopped)
					if recovers {
						api.Intercept(nil)
					}
					ok(t, resultA())
					testkit.AtMost(t, time.Since(stopped), 26*time.Second)
					stopped = time.Now()
					stopB()
					ok(t, resultB())
					testkit.AtMost(t, time.Since(stopped), 26*time.Second)
					r.account(how != "forbidden" && recovers, 4)
				})
			})
		}
	}
}

// wantHandover checks that the second replica leads at most 2 seconds after the stop of the first.
func (r *replicas) wantHandover(stopped time.Time) {
	r.t.Helper()
	if began := r.began["b"]; began.IsZero() {
		r.t.Errorf("there was no hand-over within %s", time.Since(stopped))
	} else if took := began.Sub(stopped); took > 2*time.Second {
		r.t.Errorf("the hand-over took %s", took)
	}
}

// account checks that each event is stored or counted as dropped.
func (r *replicas) account(all bool, calls int) {
	r.t.Helper()
	stored, dropped := 0, 0
	for range eventsOf(r.t, r.api) {
		stored++
	}
	for _, n := range r.dropped {
		dropped += n
	}
	if stored+dropped != calls || all && dropped > 0 {
		r.t.Errorf("%d events are stored, and dropped: %v, of %d", stored, r.dropped, calls)
	}
	if n := r.dropped["the term of leadership is lost"]; n > 0 {
		r.t.Errorf("%d events count as those of a lost term", n)
	}
}

// eventless is a transport whose requests for events ignore their context until they are let go.
type eventless struct {
	http.RoundTripper
	hangs chan struct{}
}

func (d eventless) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/events") {
		<-d.hangs
	}
	return d.RoundTripper.RoundTrip(r)
}

// TestN3_ARequestThatIgnoresItsContextDelaysNoHandover: Run reports it if it goes on at the end.
func TestN3_ARequestThatIgnoresItsContextDelaysNoHandover(t *testing.T) {
	for name, goesOn := range map[string]bool{"it ends": false, "it goes on": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := sim.NewServer(sim.Leases, eventsResource)
				r := &replicas{t: t, api: api, began: map[string]time.Time{}, dropped: map[string]int{}}
				hangs := make(chan struct{})
				stopA, resultA := r.start("a", eventless{api, hangs})
				testkit.Pass(time.Second)
				stopB, resultB := r.start("b", api)
				testkit.Pass(time.Minute)
				stopped := time.Now()
				stopA()
				testkit.Pass(5 * time.Second)
				r.wantHandover(stopped)
				if !goesOn {
					close(hangs)
				}
				err := resultA()
				testkit.AtMost(t, time.Since(stopped), 28*time.Second)
				if goesOn {
					testkit.ErrorContains(t, err, "events has not stopped in time", "Run returns")
					close(hangs)
				} else {
					ok(t, err)
				}
				stopB()
				ok(t, resultB())
				synctest.Wait()
				if !goesOn {
					r.account(true, 4)
				}
			})
		})
	}
}

// TestN3_AFlushThatIgnoresItsContextDelaysNoHandover: here the flush sends the event, because the
// limit for its object is used up.
func TestN3_AFlushThatIgnoresItsContextDelaysNoHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases, eventsResource)
		r := &replicas{t: t, api: api, began: map[string]time.Time{}, dropped: map[string]int{}}
		hangs := make(chan struct{})
		line := eventless{api, make(chan struct{})}
		close(line.hangs)
		over := roundTripper(func(q *http.Request) (*http.Response, error) {
			if r.stopping.Load() {
				return eventless{api, hangs}.RoundTrip(q)
			}
			return line.RoundTrip(q)
		})
		r.repeats = 60
		stopA, resultA := r.start("a", over)
		testkit.Pass(90 * time.Second)
		stopB, resultB := r.start("b", api)
		testkit.Pass(time.Second)
		r.stopping.Store(true)
		stopped := time.Now()
		stopA()
		testkit.Pass(5 * time.Second)
		r.wantHandover(stopped)
		const want = "sending the events of leading has not stopped in time"
		testkit.ErrorContains(t, resultA(), want, "Run returns")
		close(hangs)
		stopB()
		ok(t, resultB())
	})
}

// TestN4_EventsOfALostTermAreDroppedAtTheStop: those that waited for the flush, too.
func TestN4_EventsOfALostTermAreDroppedAtTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases, eventsResource)
		r := &replicas{t: t, api: api, began: map[string]time.Time{}, dropped: map[string]int{}}
		stop, result := r.start("a", api)
		testkit.Pass(time.Minute)
		api.Intercept(func(q *sim.Request) (*http.Response, error) {
			if q.Resource.Resource == eventsResource.Name || q.Resource.Resource == "leases" {
				return q.Refuse()
			}
			return nil, nil
		})
		testkit.Pass(20 * time.Second) // the term is lost
		api.Intercept(nil)
		testkit.Pass(time.Minute) // and the next one has begun
		stop()
		ok(t, result())
		notes := map[string]int{}
		for _, e := range eventsOf(t, api) {
			notes[e.Note]++
			if e.Note == "the last words" && e.EventTime.Time.Before(r.began["a"]) {
				t.Errorf("the lost term's event is stored: %+v", e)
			}
		}
		testkit.Equal(t, r.dropped["the term of leadership is lost"], 1)
		testkit.Len(t, r.dropped, 1)
	})
}
