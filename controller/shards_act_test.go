// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/controller"
)

// TestAct_APauseEndsWithItsSlot: this replica refuses the keys of others, and does not know the
// pause when the slot comes back.
func TestAct_APauseEndsWithItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, all := newSharded(t, controller.Options{})
		r.start()
		b := ownership('b', nil)
		all.Acquire(ownership('a', nil), b)
		r.wantSeen("with a and b", time.Second, "a b1 b2")
		act(t, r.control, "pause", "default/a")
		act(t, r.control, "pause", "default/b1")
		all.Stop(b)
		r.wantSeen("without b", time.Second, "")
		if got := act(t, r.control, "requeue", "default/b1"); !strings.HasPrefix(got, "error: ") {
			t.Errorf("a key of another replica: %s", got)
		}
		all.Acquire(ownership('b', nil))
		r.wantSeen("with b again", time.Second, "b1 b2")
		r.put("a")
		r.wantSeen("after a change of a", time.Second, "")
		begins(t, act(t, r.control, "resume", "default/a"), "default/a is resumed")
		r.wantSeen("after the resume", time.Second, "a")
	})
}
