// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/status"
	"github.com/setpoint-dev/setpoint/term"
)

var resource = sim.Resource{Group: "status.setpoint.dev", Version: "v1", Kind: "Gauge", Name: "gauges", Namespaced: true}

// TestWrite_InALostTerm: the fence refuses a status of a term that is over, and the retry of an
// apply whose term ends during it. The error is neither a conflict nor an OutdatedError.
func TestWrite_InALostTerm(t *testing.T) {
	writes := map[string]func(ctx context.Context, h *client.Handle[*Gauge], s *status.Set, g *Gauge) error{
		"apply": func(ctx context.Context, h *client.Handle[*Gauge], s *status.Set, g *Gauge) error {
			_, err := status.Apply(ctx, h, s, desired(g, s.ApplyConfigurations()))
			return err
		},
		"update": func(ctx context.Context, h *client.Handle[*Gauge], s *status.Set, g *Gauge) error {
			_, err := status.Update(ctx, h, s, g)
			return err
		},
	}
	for name, write := range writes {
		for when, inFlight := range map[string]bool{"before": false, "during": true} {
			t.Run(name+"/"+when, func(t *testing.T) {
				lost := errors.New("the Lease is lost")
				leading := term.New(term.Token{Lease: "l"}, time.Now(), time.Hour)
				sent := 0
				api := sim.NewServer(resource)
				api.Intercept(func(r *sim.Request) (*http.Response, error) {
					if r.Verb == "get" || r.Verb == "discover" {
						return nil, nil
					}
					sent++
					leading.End(lost)
					return r.Fail(http.StatusConflict, "the object has changed")
				})
				c, err := client.New(api.Config(), client.Options{Scheme: newScheme(), FieldOwner: "test", RequireTerm: true})
				testkit.NoError(t, err)
				defer c.Close()
				g := gauge(1)
				api.Put(resource, g)
				if !inFlight {
					leading.End(lost)
				}
				s := setFor(g)
				s.Current("Full", "")
				err = write(term.With(t.Context(), leading), client.For[*Gauge](c), s, g)
				var outdated *status.OutdatedError
				if inFlight && name == "update" { // it was answered, and not retried
					testkit.NotEqual(t, err, nil)
					testkit.Equal(t, sent, 1)
					return
				}
				if !errors.Is(err, term.ErrFenced) || !errors.Is(err, lost) || errors.As(err, &outdated) {
					t.Errorf("got %v", err)
				}
				testkit.Equal(t, sent, map[bool]int{true: 1}[inFlight], "requests were sent")
			})
		}
	}
}
