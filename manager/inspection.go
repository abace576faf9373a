// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync"

	"github.com/setpoint-dev/setpoint/hook"
)

// inspection is what is known of how a Lease can be used.
type inspection struct {
	mu      sync.Mutex // guards what follows
	seen    bool       // it could be read or written at least once
	trouble error      // why it cannot be
}

func (i *inspection) found(trouble error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.trouble = trouble
	i.seen = i.seen || trouble == nil
}

// usable says why the Lease cannot be used. A replica for which it never could is not ready: it could not take over.
func (i *inspection) usable() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.trouble == nil:
		return nil
	case i.seen:
		return remark(i.trouble.Error())
	default:
		return fmt.Errorf("it could not be used yet: %w", i.trouble)
	}
}

// log logs what happens to the Lease, and takes down whether it can be used.
func (l *Lease) log() *hook.LeaderElection {
	info := func(says string, args ...any) {
		l.manager.logger().Info(says, append([]any{"lease", l.String()}, args...)...)
	}
	return &hook.LeaderElection{
		Campaigning: func(string) { info("campaigning", "identity", l.elector.Identity()) },
		Acquired: func(string) {
			l.found(nil)
			info("leading")
		},
		Lost: func(string) {
			l.manager.logger().Error("the lease is lost: it was not renewed in time; the work under it is cancelled", "lease", l.String())
		},
		Released: func(_ string, err error) {
			if err != nil {
				l.manager.logger().Warn("the lease could not be released; it will expire", "lease", l.String(), "err", err)
				return
			}
			info("the lease is released")
		},
		Leader: func(_, identity string) {
			l.found(nil)
			info("somebody else leads", "leader", identity)
		},
		Trouble: func(_ string, err error) { l.found(err) },
	}
}
