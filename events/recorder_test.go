// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// TestEvent_IsStored: with every field that the API server requires.
func TestEvent_IsStored(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		stop := d.run()
		began := time.Now()
		d.Eventf(d.ctx, configMap("a"), events.Normal, "Created", "CreatePage", "created %d%%", 100)
		testkit.Pass(time.Minute)
		stop()
		all := d.list()
		if len(all) != 1 {
			t.Fatalf("there are %d Events", len(all))
		}
		e := all[0]
		if !strings.HasPrefix(e.Name, "a.") || e.Namespace != "default" || e.Type != "Normal" || e.Reason != "Created" || e.Action != "CreatePage" || e.Note != "created 100%" ||
			e.ReportingController != "website-operator" || e.ReportingInstance != "pod-1" || !e.EventTime.Time.Equal(began) || e.Series != nil {
			t.Errorf("the Event is %+v", e)
		}
		testkit.Equal(t, e.Regarding, (corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "uid-of-a"}))
	})
}

// TestEvent_ClusterScopedObject: its events are in the namespace default. A kind that the scheme
// does not know is in the object.
func TestEvent_ClusterScopedObject(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "system:g"}}}
		d.Eventf(d.ctx, gadget, events.Normal, "Created", "", "100%")
		d.close()
		e := d.list()[0]
		if e.Namespace != "default" || e.Regarding.Namespace != "" || e.Regarding.APIVersion != "example.com/v1" || e.Action != "Created" || e.Note != "100%" || !strings.HasPrefix(e.Name, "event.") {
			t.Errorf("the Event is %+v", e)
		}
	})
}

// TestN1_RequestsForOneObject: 10,000 calls at once take at most 30 requests, whether the note
// changes or not. The rest is sent at a stop. In a further hour there is one request in 5 minutes.
func TestN1_RequestsForOneObject(t *testing.T) {
	for name, notes := range map[string]int{"one note": 1, "a few notes": 7, "each call another note": 10_000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				stop := d.run()
				for i := range 10_000 {
					obj := configMap("a")
					obj.ResourceVersion = strconv.Itoa(i)
					d.fail(obj, note(i%notes))
					if i%100 == 0 {
						testkit.Pass(10 * time.Millisecond)
					}
				}
				testkit.Pass(time.Second)
				testkit.AtMost(t, d.requests(), 27)
				before := d.requests()
				for range 60 {
					d.fail(configMap("a"), note(0))
					testkit.Pass(time.Minute)
				}
				testkit.Between(t, d.requests()-before, 10, 12+2, "in an hour")
				before = d.requests()
				stop()
				d.close()
				testkit.AtMost(t, d.requests()-before, 3, "at the stop")
				testkit.Equal(t, d.shown(), 10_060, "the Events count calls")
				d.wantDropped("", 0)
			})
		})
	}
}

// TestN1_ANewReasonIsShownAtOnce: although repeats of another reason wait.
func TestN1_ANewReasonIsShownAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		stop := d.run()
		for i := range 100 {
			d.fail(configMap("a"), note(i))
			testkit.Pass(time.Millisecond)
		}
		before := d.requests()
		d.Eventf(d.ctx, configMap("a"), events.Normal, "Recovered", "Apply", "all is well")
		testkit.Pass(time.Millisecond)
		testkit.Equal(t, d.requests()-before, 1)
		stop()
		d.close()
	})
}

// TestN1_LimitForAllObjects: 100 requests at once, then 50 a second.
func TestN1_LimitForAllObjects(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		for i := range 1000 {
			d.fail(configMap(strconv.Itoa(i)), "broken")
		}
		stop := d.run()
		testkit.Pass(10 * time.Millisecond)
		testkit.Equal(t, d.requests(), 100, "requests at once")
		testkit.Pass(10 * time.Second)
		testkit.Between(t, d.requests(), 599, 601)
		stop()
		d.close()
		testkit.Equal(t, d.shown(), 1000, "events")
	})
}

// TestSeries_NewestNoteWins: of those that wait for one request.
func TestSeries_NewestNoteWins(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		for i := range 5 {
			d.fail(configMap("a"), note(i))
		}
		d.close()
		if all := d.list(); len(all) != 1 || all[0].Note != note(4) || count(&all[0]) != 5 {
			t.Errorf("the Events are %+v", all)
		}
	})
}

// TestSeries_ByTypeReasonActionAndObject: they differ in nothing else.
func TestSeries_ByTypeReasonActionAndObject(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		again := configMap("a")
		again.UID = "created again"
		for range 2 {
			for _, obj := range []object.Object{configMap("a"), configMap("b"), again, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}} {
				d.Eventf(d.ctx, obj, events.Warning, "Failed", "Apply", "x")
				d.Eventf(d.ctx, obj, events.Normal, "Failed", "Apply", "x")
				d.Eventf(d.ctx, obj, events.Warning, "Late", "Apply", "x")
				d.Eventf(d.ctx, obj, events.Warning, "Failed", "Delete", "x")
			}
		}
		d.close()
		testkit.Equal(t, len(d.list()), 16)
		testkit.Equal(t, d.shown(), 32)
	})
}

// TestN2_CountsAddUp: although requests fail, answers are lost, notes alternate, the program
// restarts, and another replica counts in the same Events.
func TestN2_CountsAddUp(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				random, calls := rand.New(rand.NewPCG(seed, 1)), 0
				luck := rand.New(rand.NewPCG(seed, 2)) // of the goroutine that sends
				broken := true
				d.api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if broken && luck.IntN(5) == 0 {
						return r.Refuse()
					}
					return nil, nil
				})
				d.line.loses = func(*http.Request) bool { return broken && luck.IntN(4) == 0 }
				for range 4 {
					stop := d.run()
					for range random.IntN(100) {
						d.fail(configMap("a"), note(random.IntN(3)))
						calls++
						if random.IntN(3) == 0 {
							testkit.Pass(time.Duration(random.IntN(2000)) * time.Millisecond)
						}
					}
					stop()
					d.close()
					d.restart()
					testkit.Pass(time.Millisecond) // no two processes record at the same time
				}
				broken = false
				lost := 0
				for _, n := range d.dropped {
					lost += n
				}
				if n := d.shown(); n > calls || n+lost < calls || lost == 0 && n != calls {
					t.Errorf("the Events count %d of %d calls, and %d were dropped", n, calls, lost)
				}
				testkit.AtMost(t, len(d.list()), 3)
			})
		})
	}
}

// TestN2_RestartContinuesTheSeries: in the Event of that note.
func TestN2_RestartContinuesTheSeries(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		for range 3 {
			d.fail(configMap("a"), "broken")
			d.fail(configMap("a"), "broken")
			d.close()
			d.restart()
			testkit.Pass(time.Minute)
		}
		all := d.list()
		if len(all) != 1 || count(&all[0]) != 6 {
			t.Fatalf("the Events are %+v", all)
		}
		testkit.Equal(t, all[0].Series.LastObservedTime.Sub(all[0].EventTime.Time), 2*time.Minute)
	})
}

// TestN2_TwoReplicasAtOnce: neither overwrites the count of the other.
func TestN2_TwoReplicasAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		one := d.Recorder
		d.restart()
		for _, r := range []*events.Recorder{one, d.Recorder, one, d.Recorder, d.Recorder, one} {
			r.Eventf(d.ctx, configMap("a"), events.Normal, "Created", "Create", "created")
			testkit.Equal(t, r.Flush(d.ctx), nil)
		}
		testkit.Equal(t, d.shown(), 6)
		testkit.Equal(t, len(d.list()), 1)
	})
}

// TestSeries_AnExpiredEventIsCreatedAgain: the API server deletes Events after an hour.
func TestSeries_AnExpiredEventIsCreatedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		for range 2 {
			d.fail(configMap("a"), "broken")
			testkit.Equal(t, d.Flush(d.ctx), nil)
			testkit.Equal(t, d.shown(), 1, "calls")
			d.api.Remove(resource, "default", d.list()[0].Name)
		}
		d.wantDropped("", 0)
	})
}

// TestN3_FlushSendsAll: without Run and without regard to the limits, also after failures.
func TestN3_FlushSendsAll(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		failures := 0
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if failures++; failures%3 == 0 {
				return r.Fail(http.StatusInternalServerError, "etcd has no leader")
			}
			return nil, nil
		})
		for i := range 300 {
			for range 30 {
				d.fail(configMap(strconv.Itoa(i)), note(i))
			}
		}
		testkit.Equal(t, d.Flush(d.ctx), nil)
		d.api.Intercept(nil)
		testkit.Equal(t, d.shown(), 9000, "calls are shown")
	})
}

// TestN3_FlushIsLimitedByItsContext: it returns the number of events that wait, and Close drops
// them.
func TestN3_FlushIsLimitedByItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
		stop := d.run()
		for range 3 {
			d.fail(configMap("a"), "broken")
			testkit.Pass(time.Second)
		}
		for _, flush := range []func(context.Context) error{d.Flush, d.Close} {
			ctx, cancel := context.WithTimeout(d.ctx, 3*time.Second)
			began := time.Now()
			if err := flush(ctx); err == nil || !strings.Contains(err.Error(), "events: 3 events were not sent in time") || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			testkit.Equal(t, time.Since(began), 3*time.Second)
			cancel()
			stop()
		}
		d.wantDropped("not sent before the stop", 3)
		d.fail(configMap("a"), "broken")
		testkit.Equal(t, d.dropped["recorded after the stop"], 1, "dropped", d.dropped)
	})
}

// TestN3_CloseDoesNotWaitForAnotherFlush: which has no limit. What that sends is dropped, too.
func TestN3_CloseDoesNotWaitForAnotherFlush(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
		d.fail(configMap("a"), "broken")
		d.fail(configMap("b"), "broken")
		var flushing sync.WaitGroup
		flushing.Go(func() { _ = d.Flush(d.ctx) })
		synctest.Wait()
		d.fail(configMap("a"), "while the first is being sent")
		ctx, cancel := context.WithTimeout(d.ctx, 3*time.Second)
		defer cancel()
		began := time.Now()
		testkit.NotEqual(t, d.Close(ctx), nil)
		testkit.Equal(t, time.Since(began), 3*time.Second)
		d.wantDropped("not sent before the stop", 2)
		flushing.Wait()
		d.wantDropped("not sent before the stop", 3)
	})
}

// TestN3_FlushOfATerm: it sends the events of its term, and no others.
func TestN3_FlushOfATerm(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		leading := term.New(term.Token{Lease: "l"}, time.Now(), time.Hour)
		defer leading.End(nil)
		inTerm := term.With(d.ctx, leading)
		d.Eventf(inTerm, configMap("a"), events.Normal, "Created", "Create", "in a term")
		d.Eventf(d.ctx, configMap("b"), events.Normal, "Created", "Create", "without a term")
		testkit.Equal(t, d.Flush(inTerm), nil)
		if all := d.list(); len(all) != 1 || all[0].Note != "in a term" {
			t.Errorf("the Events are %+v", all)
		}
		d.close()
		testkit.Equal(t, len(d.list()), 2, "Events")
	})
}

// TestN4_AnEventOfALostTermIsDropped: whether it waits for its first try or for another one.
func TestN4_AnEventOfALostTermIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		leading := term.New(term.Token{Lease: "l"}, time.Now(), time.Minute)
		defer leading.End(nil)
		inTerm := term.With(d.ctx, leading)
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
		stop := d.run()
		d.Eventf(inTerm, configMap("a"), events.Normal, "Created", "Create", "tried")
		testkit.Pass(time.Second)
		stop()
		d.Eventf(inTerm, configMap("b"), events.Normal, "Created", "Create", "not tried")
		d.api.Intercept(nil)
		testkit.Pass(time.Minute)
		next := term.New(term.Token{Lease: "l"}, time.Now(), time.Hour)
		defer next.End(nil)
		d.Eventf(term.With(d.ctx, next), configMap("a"), events.Normal, "Created", "Create", "of the next term")
		d.close()
		d.wantDropped("the term of leadership is lost", 2)
		if all := d.list(); len(all) != 1 || all[0].Note != "of the next term" || count(&all[0]) != 1 {
			t.Errorf("the Events are %+v", all)
		}
	})
}

// TestN5_MemoryIsBounded: also while nothing can be sent. Idle series make room for new ones.
func TestN5_MemoryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		for i := range 5000 {
			for range 2 {
				d.fail(configMap(strconv.Itoa(i)), "broken")
			}
		}
		d.wantDropped("too many series wait", 2*(5000-4096))
		testkit.Equal(t, d.Flush(d.ctx), nil)
		for i := range 5000 {
			d.fail(configMap(strconv.Itoa(5000+i)), "broken")
			if i%1000 == 0 {
				testkit.Equal(t, d.Flush(d.ctx), nil)
			}
		}
		d.close()
		d.wantDropped("too many series wait", 2*(5000-4096))
		testkit.Equal(t, d.shown(), 2*4096+5000, "the Events count calls")
	})
}

// TestN5_EventDoesNotWait: while a request hangs. A call has few allocations.
func TestN5_EventDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
		stop := d.run()
		obj := configMap("a")
		d.fail(obj, "broken")
		testkit.Pass(time.Second)
		began, requests := time.Now(), d.requests()
		testkit.Equal(t, testing.AllocsPerRun(1000, func() { d.Eventf(d.ctx, obj, events.Warning, "Failed", "Apply", "broken") }), 0)
		testkit.AtMost(t, testing.AllocsPerRun(1000, func() { d.fail(obj, "broken") }), 3)
		testkit.Equal(t, time.Since(began), 0)
		testkit.Equal(t, d.requests(), requests)
		stop()
		d.api.Intercept(nil)
		d.close()
		testkit.Equal(t, d.shown(), 1+2*1001, "the Events count calls")
	})
}

// BenchmarkEvent is a repeated call with one argument.
func BenchmarkEvent(b *testing.B) {
	c, err := client.New(sim.NewServer(resource).Config(), client.Options{})
	testkit.NoError(b, err)
	defer c.Close()
	r, obj := events.New(c, events.Options{Name: "website-operator"}), configMap("a")
	b.ReportAllocs()
	for b.Loop() {
		r.Eventf(b.Context(), obj, events.Warning, "Failed", "Apply", "failed: %v", errors.ErrUnsupported)
	}
}
