// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFromContext(t *testing.T) {
	testkit.Equal(t, ledger.FromContext(t.Context()), nil, "without a Reconcile there")
	j := journal.New(journal.Origin{})
	ctx := journal.With(t.Context(), j)
	testkit.Equal(t, ledger.FromContext(ctx), ledger.Ledger(j))
	testkit.Equal(t, ledger.FromContext(ledger.Without(ctx)), nil, "the ledger of background work")
}
