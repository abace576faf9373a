// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
)

// TestL1_WhatIsNeverStoredDoesNotExtendATerm: an API server that refuses each write as a conflict,
// although the record is still ours, neither renews nor releases. Rivals see the record unchanged.
func TestL1_WhatIsNeverStoredDoesNotExtendATerm(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := sim.NewServer(sim.Leases)
			a := newReplica(t, api, "a")
			conflict := func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPut {
					return refusing(http.StatusConflict).RoundTrip(req)
				}
				return api.RoundTrip(req)
			}
			began := time.Now()
			var ended time.Time
			stop, result := a.start(t, func(take, work context.Context) error {
				defer func() { ended = time.Now() }()
				return untilStopped(take, work)
			})
			testkit.Pass(seconds(3))
			a.line.Store(&conflict)
			if stops {
				stop()
				ok(t, result())
				a.want(t, "acquired operator", "released operator: true")
				return
			}
			b := newStandby(t, api, "b")
			testkit.Pass(seconds(11))
			a.want(t, "acquired operator", "lost operator") // 12 s after the last stored one
			testkit.Equal(t, ended.Sub(began), seconds(14), "the term ends after")
			testkit.Pass(time.Minute)
			b.leadsAfter(t, began.Add(seconds(3)), seconds(15), jitter)
			stop()
			ok(t, result())
		})
	}
}

// TestL1_AnAnswerThatSaysSomethingElseWinsNothing: the answer was changed by an admission webhook,
// or is not the Lease.
func TestL1_AnAnswerThatSaysSomethingElseWinsNothing(t *testing.T) {
	const of = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":`
	for name, answer := range map[string]string{
		"as it was":     "",
		"empty":         `{}`,
		"a Status":      `{"kind":"Status","apiVersion":"v1","status":"Success"}`,
		"another Lease": of + `{"namespace":"default","name":"node","uid":"u","resourceVersion":"7"},"spec":{"holderIdentity":""}}`,
		"no version":    of + `{"namespace":"default","name":"operator","uid":"u"}}`,
	} {
		for _, verb := range []string{"get", "update", "watch"} {
			t.Run(name+" to "+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					api := sim.NewServer(sim.Leases)
					give(api, "b")
					api.Intercept(func(r *sim.Request) (*http.Response, error) {
						switch {
						case !isLease(r, verb) || name == "as it was" && verb != "update":
							return nil, nil
						case verb == "watch":
							return r.SendAndHang(`{"type":"MODIFIED","object":` + answer + "}\n")
						case name == "as it was":
							return r.Send(stored(t, api))
						}
						return r.Send(answer)
					})
					a := newReplica(t, api, "a")
					stop, result := a.start(t, func(take, work context.Context) error {
						testkit.Equal(t, holder(t, api), "a", "it leads, and holds the Lease")
						return untilStopped(take, work)
					})
					testkit.Pass(time.Minute)
					stop()
					ok(t, result())
				})
			})
		}
	}
}

// stored returns the Lease as the API server answers it.
func stored(t *testing.T, api *sim.Server) string {
	text, err := api.Object(sim.Leases, "default", "operator").MarshalJSON()
	ok(t, err)
	return string(text)
}

// TestL6_OtherLeasesAreNoNews: events of other Leases do not count as changes of this one.
func TestL6_OtherLeasesAreNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		began := time.Now()
		give(api, "b")
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if !isLease(r, "watch") {
				return nil, nil
			}
			return r.Send(fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":`+
				`{"namespace":"kube-node-lease","name":"node","uid":"u","resourceVersion":"%d"},"spec":{"holderIdentity":"node"}}}`, time.Now().Unix()))
		})
		a := newStandby(t, api, "a")
		testkit.Pass(time.Minute)
		a.leadsAfter(t, began, seconds(15), jitter+seconds(2.4)) // it polls
	})
}

// TestL1_OurOwnRecordPutBackDoesNotShortenTheWait: the process that held the Lease a moment ago
// still trusts its term.
func TestL1_OurOwnRecordPutBackDoesNotShortenTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newStandby(t, api, "a")
		testkit.Pass(seconds(5))
		ours := lease(t, api).Spec
		give(api, "b")
		testkit.Pass(seconds(1)) // at the renewal a sees it
		seen := time.Now()
		testkit.Pass(seconds(2))
		put(api, ours)
		testkit.Pass(time.Minute)
		a.leadsAfter(t, seen, seconds(15), jitter)
	})
}

// TestL9_AStampThatIsRefusedDoesNotKeepTheLease: the Lease is then released without it.
func TestL9_AStampThatIsRefusedDoesNotKeepTheLease(t *testing.T) {
	for name, code := range map[string]int{"too many annotations": http.StatusUnprocessableEntity, "a policy": http.StatusForbidden, "too large": http.StatusRequestEntityTooLarge} {
		for _, how := range []string{"ours", "client-go's"} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHeirs(t)
					fussy := func(req *http.Request) (*http.Response, error) {
						if req.Method == http.MethodPut {
							text, err := io.ReadAll(req.Body)
							ok(t, err)
							req.Body = io.NopCloser(bytes.NewReader(text))
							if bytes.Contains(text, []byte(leaderelection.WrittenAnnotation)) {
								return refusing(code).RoundTrip(req)
							}
						}
						return h.api.RoundTrip(req)
					}
					write := func(_, work context.Context) error {
						h.write(work, "one")
						return nil
					}
					if how == "ours" {
						a := newReplica(t, h.api, "a")
						a.line.Store(&fussy)
						_, result := a.start(t, write)
						ok(t, result())
						a.want(t, "acquired operator", "released operator: false")
					} else {
						a := newHost(t, h.api, "a")
						a.line.Store(&fussy)
						stop, ended := a.start(t, write)
						testkit.Pass(seconds(5))
						stop()
						<-ended
						a.result()
					}
					testkit.Equal(t, holder(t, h.api), "", "holds the Lease")
				})
			})
		}
	}
}

// refusing returns an API server that refuses these requests.
func refusing(code int) *sim.Server {
	api := sim.NewServer(sim.Leases)
	api.Intercept(func(r *sim.Request) (*http.Response, error) { return r.Fail(code, "no") })
	return api
}
