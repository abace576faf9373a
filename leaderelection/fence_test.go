// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package leaderelection_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/leaderelection"
	"github.com/setpoint-dev/setpoint/term"
)

// fenced returns a handle whose client refuses requests without a term.
func fenced(t *testing.T, api *sim.Server) *client.Handle[*coordinationv1.Lease] {
	t.Helper()
	c, err := client.New(api.Config(), client.Options{RequireTerm: true})
	testkit.NoError(t, err)
	return client.For[*coordinationv1.Lease](c)
}

func create(ctx context.Context, h *client.Handle[*coordinationv1.Lease], name string) error {
	_, err := h.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	return err
}

// TestL2_WhatLeadsIsFenced: requests pass during the term, at any time, and none pass after its
// loss.
func TestL2_WhatLeadsIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a, h := newReplica(t, api, "a"), fenced(t, api)
		var tokens []term.Token
		stop, result := a.start(t, func(take, work context.Context) error {
			leading := term.FromContext(work)
			if leading == nil || term.FromContext(take) != leading {
				t.Fatal("what leads has no term, or two")
			}
			l := lease(t, api)
			if want := (term.Token{Lease: l.UID, ResourceVersion: l.ResourceVersion, Holder: *l.Spec.HolderIdentity}); leading.Token() != want || want.Lease == "" {
				t.Errorf("the token is %s, want %s", leading.Token(), want)
			}
			tokens = append(tokens, leading.Token())
			if len(tokens) > 1 {
				return untilStopped(take, work)
			}
			for _, name := range []string{"x", "y"} {
				ok(t, create(work, h, name))
				time.Sleep(seconds(60.3)) // between two renewals
				renewed := lease(t, api).Spec.RenewTime.Time
				testkit.Equal(t, leading.Until().Sub(renewed).Round(time.Second/10), seconds(13.5), "the term is trusted until after the last renewal")
			}
			a.cut()
			<-work.Done()
			ok(t, create(context.WithoutCancel(work), h, "late")) // no other process can lead yet
			time.Sleep(time.Until(leading.Until()))
			testkit.ErrorIs(t, create(context.WithoutCancel(work), h, "z"), term.ErrFenced, "after the term")
			<-leading.Done()
			testkit.ErrorIs(t, leading.Trusted(), leaderelection.ErrLost, "the term that is over says")
			a.mend()
			return nil
		})
		testkit.Pass(3 * time.Minute)
		stop()
		ok(t, result())
		if len(tokens) != 2 || tokens[0].Lease != tokens[1].Lease || tokens[0].ResourceVersion == tokens[1].ResourceVersion {
			t.Errorf("the tokens are %s", tokens)
		}
	})
}

// TestL2_ATermThatIsStolenEndsAtOnce: it ends before the time of its trust is over, and before its
// work is cancelled.
func TestL2_ATermThatIsStolenEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a, h := newReplica(t, api, "a"), fenced(t, api)
		stop, result := a.start(t, func(_, work context.Context) error {
			context.AfterFunc(work, func() {
				testkit.ErrorIs(t, term.FromContext(work).Trusted(), leaderelection.ErrLost, "when the work ends, its term says")
			})
			time.Sleep(time.Second)
			give(api, "b")
			<-work.Done()
			testkit.ErrorIs(t, create(context.WithoutCancel(work), h, "x"), leaderelection.ErrLost)
			return nil
		})
		testkit.Pass(seconds(8))
		stop()
		ok(t, result())
		synctest.Wait()
	})
}

// TestL2_ATermEndsBeforeItsLeaseIsReleased: a goroutine that outlives the work cannot write when
// another process can lead.
func TestL2_ATermEndsBeforeItsLeaseIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a, h := newReplica(t, api, "a"), fenced(t, api)
		var left context.Context
		stop, result := a.start(t, func(take, work context.Context) error {
			left = context.WithoutCancel(work)
			<-take.Done()
			return create(work, h, "x")
		})
		testkit.Pass(seconds(5.5))
		released := 0
		api.Intercept(func(r *sim.Request) (*http.Response, error) {
			if l := lease(t, api); isLease(r, "update") && term.FromContext(left).Trusted() != nil && *l.Spec.HolderIdentity == "a" {
				released++
			}
			return nil, nil
		})
		stop()
		ok(t, result())
		testkit.ErrorIs(t, create(left, h, "y"), term.ErrFenced, "after the release")
		testkit.Equal(t, released, 1, "after the release")
		testkit.NotEqual(t, api.Object(sim.Leases, "default", "x"), nil)
		testkit.Equal(t, api.Object(sim.Leases, "default", "y"), nil)
	})
}

// TestL2_TheTrustCountsFromWhenARenewalWasSent: not from its answer.
func TestL2_TheTrustCountsFromWhenARenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		a := newReplica(t, api, "a")
		slow := func(req *http.Request) (*http.Response, error) {
			answer, err := api.RoundTrip(req)
			if req.Method != http.MethodGet {
				time.Sleep(seconds(1.5))
			}
			return answer, err
		}
		a.line.Store(&slow)
		stop, result := a.start(t, func(take, work context.Context) error {
			for range 5 { // the first is the acquisition
				written := lease(t, api).Spec.RenewTime.Time
				testkit.AtMost(t, term.FromContext(work).Until().Sub(written).Round(time.Second/10), seconds(13.5))
				time.Sleep(seconds(4.7))
			}
			return untilStopped(take, work)
		})
		testkit.Pass(time.Minute)
		stop()
		ok(t, result())
	})
}

// TestL2_TheElectorNeedsNoTerm: the elector works with the configuration of a strict client and
// with a term in its context.
func TestL2_TheElectorNeedsNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := sim.NewServer(sim.Leases)
		cfg := api.Config()
		cfg.Transport = &replica{api: api}
		c, err := client.New(cfg, client.Options{RequireTerm: true})
		testkit.NoError(t, err)
		e, err := leaderelection.New(c.Config(), leaderelection.Options{Lease: "operator", Namespace: "default", Identity: "a"})
		testkit.NoError(t, err)
		other := term.New(term.Token{Lease: types.UID("other")}, time.Now(), time.Hour)
		other.End(nil)
		ctx, stop := context.WithTimeout(term.With(logr.NewContext(t.Context(), logr.Discard()), other), time.Hour)
		defer stop()
		led := false
		ok(t, e.Run(ctx, func(take, work context.Context) error {
			led = true
			time.Sleep(time.Minute)
			if leading := term.FromContext(work); leading == nil || strings.HasPrefix(leading.Token().String(), "other") || leading.Trusted() != nil {
				t.Errorf("the work has the term %v", leading)
			}
			stop()
			return untilStopped(take, work)
		}))
		testkit.Equal(t, led, true)
		testkit.Equal(t, holder(t, api), "")
	})
}
