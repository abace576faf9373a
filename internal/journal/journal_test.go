// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/internal/contextkey"
	"github.com/setpoint-dev/setpoint/internal/journal"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func update() ledger.Request {
	return ledger.Request{Verb: "update", Resource: "pods", Namespace: "ns", Name: "p"}
}

func stored(w *ledger.Write) {
	w.UID, w.ResourceVersion, w.Effect, w.Unknown = "u", "7", ledger.Stored, ""
}

func TestJournal_AWriteThatRepeatsAnotherIsUnchanged(t *testing.T) {
	l := journal.New(journal.Origin{})
	var first, second journal.Entry
	testkit.NoError(t, errors.Join(l.Begin(&first, update()), l.Begin(&second, update())))
	if w := l.Writes(); len(w) != 2 || w[0].Effect != ledger.Pending || !l.Wrote() {
		t.Errorf("before the answers: %+v", w)
	}
	first.Update(stored)
	second.Update(stored)
	first.Update(func(*ledger.Write) {}) // still the one that made the version
	if w := l.Writes(); w[0].Effect != ledger.Stored || w[1].Effect != ledger.Unchanged {
		t.Errorf("they are %s and %s", w[0].Effect, w[1].Effect)
	}
}

type owner struct{ late *ledger.LateWriteError }

func (*owner) Decodes(schema.GroupResource) bool { return false }

func (o *owner) Late(err *ledger.LateWriteError) { o.late = err }

func TestJournal_ClosedRefusesOnlyWhatMayStore(t *testing.T) {
	told := &owner{}
	l := journal.New(journal.Origin{Controller: "web", Key: "k", Owner: told})
	l.Close()
	read, dryRun := update(), update()
	read.Verb, dryRun.DryRun = "get", true
	for _, r := range []ledger.Request{read, dryRun} {
		if err := l.Begin(&journal.Entry{}, r); err != nil || told.late != nil {
			t.Errorf("%s: %v", r.String(), err)
		}
	}
	late, ok := errors.AsType[*ledger.LateWriteError](l.Begin(&journal.Entry{}, update()))
	if !ok || late != told.late || late.Controller != "web" || late.Key != "k" || l.Wrote() || len(l.Requests()) != 2 {
		t.Errorf("a late write: %v, told %v", late, told.late)
	}
}

func TestContext(t *testing.T) {
	l := journal.New(journal.Origin{})
	ctx := journal.With(t.Context(), l)
	for name, c := range map[string]struct {
		ctx     context.Context
		want    *journal.Journal
		decided bool
	}{
		"none":       {t.Context(), nil, false},
		"with one":   {ctx, l, true},
		"on purpose": {ledger.Without(ctx), nil, true},
	} {
		testkit.Equal(t, journal.FromContext(c.ctx), c.want, name)
		testkit.Equal(t, c.ctx.Value(contextkey.Ledger{}) != nil, c.decided, name)
	}
}
