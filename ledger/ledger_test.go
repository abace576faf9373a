// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFromContext(t *testing.T) {
	if l := ledger.FromContext(t.Context()); l != nil {
		t.Errorf("without a Reconcile there is %v", l)
	}
	j := journal.New(journal.Origin{})
	ctx := journal.With(t.Context(), j)
	if l := ledger.FromContext(ctx); l != ledger.Ledger(j) {
		t.Errorf("the ledger is %v", l)
	}
	if l := ledger.FromContext(ledger.Without(ctx)); l != nil {
		t.Errorf("the ledger of background work is %v", l)
	}
}
