// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fakeapi"
)

// TestL1_WhatIsNeverStoredDoesNotExtendATerm: an API server that refuses each write as a conflict, although the record is still ours,
// has renewed and released nothing. Rivals see the record stand still.
func TestL1_WhatIsNeverStoredDoesNotExtendATerm(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := fakeapi.New(fakeapi.Leases)
			a := newReplica(t, api, "a")
			conflict := func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPut {
					return conflicting{}.RoundTrip(req)
				}
				return api.RoundTrip(req)
			}
			began := time.Now()
			var ended time.Time
			stop, result := a.start(t, func(take, work context.Context) error {
				defer func() { ended = time.Now() }()
				return untilStopped(take, work)
			})
			pass(seconds(3))
			a.line.Store(&conflict)
			if stops {
				stop()
				ok(t, result())
				a.want(t, "acquired operator", "released operator: true")
				return
			}
			b := newStandby(t, api, "b")
			pass(seconds(11))
			a.want(t, "acquired operator", "lost operator") // 12 s after the last one that was stored
			if took := ended.Sub(began); took != seconds(14) {
				t.Errorf("the term ends after %s", took)
			}
			pass(time.Minute)
			b.leadsAfter(t, began.Add(seconds(3)), seconds(15), jitter)
			stop()
			ok(t, result())
		})
	}
}

// conflicting is an API server that sees conflicts where there are none.
type conflicting struct{}

// RoundTrip answers a write with 409.
func (conflicting) RoundTrip(req *http.Request) (*http.Response, error) {
	refusing := fakeapi.New(fakeapi.Leases)
	refusing.Intercept(func(r *fakeapi.Request) (*http.Response, error) { return r.Fail(http.StatusConflict, "a conflict") })
	return refusing.RoundTrip(req)
}
