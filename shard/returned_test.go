// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/shard"
	"github.com/setpoint-dev/setpoint/term"
)

// TestP5_AReleasedSlotIsNotLost: the end of its term shows that its work had returned, so its last
// events may be stored. A slot of a lost member's Lease is lost.
func TestP5_AReleasedSlotIsNotLost(t *testing.T) {
	for name, lost := range map[string]bool{"released": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				a := f.start("a", shard.Options{})
				time.Sleep(time.Minute)
				b := f.start("b", shard.Options{})
				time.Sleep(time.Second)
				synctest.Wait()
				all := a.owns()
				testkit.AtLeast(t, len(all), term.Slots)
				if a.cut.Store(lost); lost {
					time.Sleep(time.Minute)
				}
				a.stop()
				time.Sleep(time.Minute)
				b.stop()
				ended(t, a, b)
				for _, of := range all {
					if why := of.Term.Trusted(); why == nil || errors.Is(why, fence.ErrReturned) == lost {
						t.Fatalf("the term of slot %d is over: %v", of.Number, why)
					}
				}
			})
		})
	}
}

func ended(t *testing.T, all ...*replica) {
	t.Helper()
	for _, r := range all {
		testkit.Equal(t, <-r.done, nil, r.name)
	}
}
