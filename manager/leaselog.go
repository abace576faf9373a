// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"log/slog"

	"github.com/setpoint-dev/setpoint/hook"
)

func (l *Lease) logger() *slog.Logger { return l.roster.report.logger().With("lease", l.place()) }

// text chooses the words for one leader, or for a member of a group.
func (l *Lease) text(leader, member string) string {
	if l.sharded {
		return member
	}
	return leader
}

func (l *Lease) log() *hook.LeaderElection {
	return &hook.LeaderElection{
		Campaigning: func(string) {
			l.logger().Info(l.text("campaigning", "joining the group"), "identity", l.elector.Identity())
		},
		Acquired: func(string) {
			l.found(nil)
			l.logger().Info(l.text("leading", "member of the group"))
		},
		Lost: func(string) {
			l.logger().Error(l.text(
				"the lease is lost: not renewed in time, or held by another replica; the work under it is cancelled",
				"the membership is lost: its lease was not renewed in time, or another replica holds it; the work in all slots is cancelled"))
		},
		Released: func(_ string, err error) {
			if err != nil {
				l.logger().Warn(l.text(
					"the lease could not be released; it will expire",
					"the lease of this member could not be released; it will expire"), "err", err)
				return
			}
			l.logger().Info(l.text("the lease is released", "left the group"))
		},
		Leader: func(_, identity string) {
			l.found(nil)
			l.logger().Info(l.text("another replica leads", "another process holds the lease of this member"), "leader", identity)
		},
		Trouble: func(_ string, err error) { l.found(err) },
	}
}
