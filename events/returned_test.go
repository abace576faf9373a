// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/events"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestN2_N4_EventsOfATermThatIsOver: they are stored if its work had returned, and dropped
// otherwise (N4). The client is strict. A part, such as a slot, may end before its term.
func TestN2_N4_EventsOfATermThatIsOver(t *testing.T) {
	for name, test := range map[string]struct {
		part          bool
		end           func(whole, part *fence.Term)
		dropped, late string
	}{
		"returned": {false, func(whole, _ *fence.Term) { whole.End(fence.ErrReturned) }, "", "recorded after the work of its term has returned"},
		"lost":     {false, func(whole, _ *fence.Term) { whole.End(errors.New("lost")) }, lostTerm, lostTerm},
		"lost, then returned": {false, func(whole, _ *fence.Term) {
			testkit.Pass(time.Minute)
			whole.End(fence.ErrReturned)
		}, lostTerm, lostTerm},
		"a part returned": {true, func(_, part *fence.Term) { part.End(fence.ErrReturned) }, "", "recorded after the work of its term has returned"},
		"a part returned, then the term was lost": {true, func(whole, part *fence.Term) {
			part.End(fence.ErrReturned)
			whole.End(errors.New("lost"))
		}, "", "recorded after the work of its term has returned"},
		"a part's term was lost": {true, func(whole, _ *fence.Term) { whole.End(errors.New("lost")) }, lostTerm, lostTerm},
		"a part was lost":        {true, func(_, part *fence.Term) { part.End(errors.New("lost")) }, lostTerm, lostTerm},
		"a part's term returned": {true, func(whole, _ *fence.Term) { whole.End(fence.ErrReturned) }, "", "recorded after the work of its term has returned"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				whole := fence.New(fence.Token{Lease: "l"}, time.Now(), 30*time.Second)
				defer whole.End(nil)
				part := whole.Part("slot 1")
				defer part.End(nil)
				under := fence.With(d.ctx, whole)
				if test.part {
					under = fence.With(d.ctx, part)
				}
				d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Refuse() })
				stop := d.run()
				d.Eventf(under, configMap("a"), events.Normal, "Created", "Create", "in time")
				testkit.Pass(time.Second)
				stop()
				test.end(whole, part)
				d.api.Intercept(nil)
				d.close()
				stored := 1
				if test.dropped != "" {
					stored = 0
				}
				d.wantDropped(lostTerm, 1-stored)
				testkit.Len(t, d.list(), stored, "the Events")
				d.restart()
				clear(d.dropped)
				d.Eventf(under, configMap("b"), events.Normal, "Created", "Create", "too late")
				d.close()
				d.wantDropped(test.late, 1)
			})
		})
	}
}

const lostTerm = "the term of leadership is lost"

// TestN3_FlushOfATermSendsItsParts: the events of its slots, too.
func TestN3_FlushOfATermSendsItsParts(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		whole := fence.New(fence.Token{Lease: "l"}, time.Now(), time.Hour)
		defer whole.End(nil)
		part := whole.Part("slot 1")
		defer part.End(nil)
		d.Eventf(fence.With(d.ctx, part), configMap("a"), events.Normal, "Created", "Create", "in a slot")
		d.Eventf(d.ctx, configMap("b"), events.Normal, "Created", "Create", "without a term")
		testkit.Equal(t, d.Flush(fence.With(d.ctx, whole)), nil)
		if all := d.list(); len(all) != 1 || all[0].Note != "in a slot" {
			t.Errorf("the Events are %+v", all)
		}
		d.close()
	})
}

// TestN2_ARequestThatWaitsAtTheEndOfItsTerm: the fence refuses it, and it is sent without a term.
func TestN2_ARequestThatWaitsAtTheEndOfItsTerm(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		leading := fence.New(fence.Token{Lease: "l"}, time.Now(), time.Hour)
		defer leading.End(nil)
		d.api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Hang() })
		stop := d.run()
		d.Eventf(fence.With(d.ctx, leading), configMap("a"), events.Normal, "Created", "Create", "waits")
		testkit.Pass(time.Second)
		leading.End(fence.ErrReturned)
		testkit.Pass(0)
		d.api.Intercept(nil)
		testkit.Pass(time.Minute)
		stop()
		d.close()
		d.wantDropped(lostTerm, 0)
		testkit.Equal(t, d.shown(), 1, "the Events count calls")
	})
}
