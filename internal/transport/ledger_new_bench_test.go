// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/journal"
)

// BenchmarkNewLedger is what a Reconcile pays that makes no request.
func BenchmarkNewLedger(b *testing.B) {
	o := journal.Origin{Controller: "website", Key: b, Run: "a1b2c3", Delivery: 7}
	b.Run("ledger", func(b *testing.B) {
		b.ReportAllocs()
		var l *journal.Journal
		for b.Loop() {
			l = journal.New(o)
		}
		kept(l)
	})
	b.Run("and context", func(b *testing.B) {
		b.ReportAllocs()
		ctx := context.Background()
		for b.Loop() {
			l := journal.New(o)
			kept(journal.With(ctx, l))
			if l.Wrote() {
				b.Fatal("it wrote")
			}
		}
	})
}

//go:noinline
func kept(any) {}
