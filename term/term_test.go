// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package term_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/setpoint-dev/setpoint/internal/fence"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOf(t *testing.T) {
	leading := term.New(term.Token{}, time.Now(), time.Hour)
	ctx := term.With(context.Background(), leading)
	for what, c := range map[string]struct {
		ctx     context.Context
		leading *term.Term
		said    bool
	}{
		"none":                {context.Background(), nil, false},
		"one":                 {ctx, leading, true},
		"on purpose without":  {term.Without(ctx), nil, true},
		"nil changes nothing": {term.With(ctx, nil), leading, true},
		"nil is not said":     {term.With(context.Background(), nil), nil, false},
	} {
		testkit.Equal(t, term.FromContext(c.ctx), c.leading, what)
		testkit.Equal(t, fence.Decided(c.ctx), c.said, what)
	}
}

// TestNil_Answers: without leader election, and in a unit test of a Reconcile.
func TestNil_Answers(t *testing.T) {
	none := term.FromContext(t.Context())
	if none != nil || none.Token() != (term.Token{}) || none.Trusted() != nil || !none.Until().IsZero() || none.Done() != nil {
		t.Errorf("a nil Term answers %v, %v, %s, %v", none.Token(), none.Trusted(), none.Until(), none.Done())
	}
}
