// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// TestL2_APartHasAFenceOfItsOwn: a request of a part is refused when the part or its term ends, and
// the error names which. The end of a part affects neither the term nor another part.
func TestL2_APartHasAFenceOfItsOwn(t *testing.T) {
	const ofPart, ofTerm = "fence: slot 17 of the term of leadership u@7 has ended: lost", "fence: the term of leadership u@7 has ended: lost"
	end := func(after time.Duration, which func(whole, part *fence.Term) *fence.Term) func(whole, part *fence.Term) {
		return func(whole, part *fence.Term) { time.Sleep(after); which(whole, part).End(errLost) }
	}
	whole := func(whole, _ *fence.Term) *fence.Term { return whole }
	part := func(_, part *fence.Term) *fence.Term { return part }
	for name, c := range map[string]struct {
		dialing, answer time.Duration
		meanwhile       func(whole, part *fence.Term)
		after           time.Duration // it is refused, if says is not empty
		says            string
		wholeGoesOn     bool
	}{
		"in time":                        {dialing: limit - 1, wholeGoesOn: true},
		"the part ends":                  {dialing: time.Hour, meanwhile: end(4*time.Second, part), after: 4 * time.Second, says: ofPart, wholeGoesOn: true},
		"the term ends":                  {dialing: time.Hour, meanwhile: end(4*time.Second, whole), after: 4 * time.Second, says: ofTerm},
		"the trust runs out":             {dialing: time.Hour, after: limit, says: "fence: the term of leadership u@7 is not trusted any more"},
		"on the wire, and the part ends": {answer: 4 * time.Second, meanwhile: end(time.Second, part), wholeGoesOn: true},
		"on the wire, and the term ends": {answer: time.Hour, meanwhile: end(time.Second, whole)},
		"the term is renewed":            {dialing: 12 * time.Second, meanwhile: func(whole, _ *fence.Term) { time.Sleep(limit - 1); whole.Extend(time.Now()) }, wholeGoesOn: true},
		"the part ends after the renewal": {dialing: time.Hour, after: 14 * time.Second, says: ofPart, wholeGoesOn: true, meanwhile: func(whole, part *fence.Term) {
			time.Sleep(limit - 1)
			whole.Extend(time.Now())
			time.Sleep(4*time.Second + 1)
			part.End(errLost)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTrial(t, client.Options{})
				defer f.close()
				f.dialing, f.answer = c.dialing, c.answer
				start := time.Now()
				leading := fence.New(fence.Token{Lease: "u", ResourceVersion: "7"}, start, limit)
				defer leading.End(nil)
				slot, other := leading.Part("slot 17"), leading.Part("slot 18")
				if c.meanwhile != nil {
					go c.meanwhile(leading, slot)
				}
				err := f.do(journal.With(fence.With(t.Context(), slot), journal.New(journal.Origin{})), http.MethodPut)
				took := time.Since(start)
				if refused := c.says != ""; errors.Is(err, term.ErrFenced) != refused || (err != nil) != refused || (len(f.seen) == 0) != refused {
					t.Fatalf("%v, arrived: %v", err, f.seen)
				}
				if err != nil && (!strings.Contains(err.Error(), c.says) || took != c.after) {
					t.Errorf("after %s: %v\nwant after %s: %s", took, err, c.after, c.says)
				}
				synctest.Wait()
				f.dialing, f.answer = 0, 0
				for _, under := range []*fence.Term{leading, other} {
					err := f.do(fence.With(t.Context(), under), http.MethodPut)
					testkit.Equal(t, err == nil, c.wholeGoesOn, "another request", err)
				}
				err = f.do(fence.With(t.Context(), slot), http.MethodPut)
				testkit.Equal(t, err == nil, slot.Trusted() == nil, "a request of the part", err)
			})
		})
	}
}

// TestAPartHasATrailOfItsOwn: the term does not hand its writes over.
func TestAPartHasATrailOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTrial(t, client.Options{})
		defer f.close()
		leading := fence.New(fence.Token{}, time.Now(), limit)
		defer leading.End(nil)
		slot := leading.Part("slot 17")
		slot.Inherit(&fence.Handover{Holder: "before"})
		testkit.NoError(t, f.do(journal.With(fence.With(t.Context(), slot), journal.New(journal.Origin{})), http.MethodPut))
		ofPart, ofTerm := slot.Written().Written, leading.Written().Written
		if len(ofPart) != 1 || len(ofTerm) != 0 || slot.Inherited().Holder != "before" || leading.Inherited() != nil {
			t.Errorf("the part wrote %v, the term %v", ofPart, ofTerm)
		}
	})
}
