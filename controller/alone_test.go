// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// TestRun_SaysUnderWhichTerm checks that the log and the snapshot show the term that Run leads
// under, or that there is none.
func TestRun_SaysUnderWhichTerm(t *testing.T) {
	for _, name := range []string{"", "uid@7"} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			c := controller.New("test", controller.Func[string](func(context.Context, string) (controller.Result, error) {
				return controller.Result{}, nil
			}), controller.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, stop := context.WithCancel(t.Context())
			if name != "" {
				leading := term.New(term.Token{Lease: "uid", ResourceVersion: "7"}, time.Now(), time.Minute)
				defer leading.End(nil)
				ctx = term.With(ctx, leading)
			}
			ended := make(chan error)
			go func() { ended <- c.Run(ctx) }()
			synctest.Wait()
			testkit.Equal(t, c.Snapshot().Leading, true, name)
			testkit.Equal(t, c.Snapshot().Term, name)
			stop()
			ok(t, <-ended)
			testkit.Equal(t, strings.Contains(log.String(), "leading without a term of leadership"), name == "", log.String())
			testkit.Equal(t, c.Snapshot().Leading, false, name, "after its end")
			testkit.Equal(t, c.Snapshot().Term, "", name, "after its end")
		})
	}
}
