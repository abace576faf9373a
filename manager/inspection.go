// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync/atomic"

	"github.com/setpoint-dev/setpoint/server"
)

// inspection records how a Lease can be used.
type inspection struct {
	seen    atomic.Bool           // it could be read or written at least once
	trouble atomic.Pointer[error] // nil, or why it cannot be
}

func (i *inspection) found(trouble error) {
	if trouble == nil {
		i.seen.Store(true)
		i.trouble.Store(nil)
		return
	}
	i.trouble.Store(&trouble)
}

// usable returns why the Lease cannot be used. A replica for which it never could is not ready: it
// could not take over.
func (i *inspection) usable() error {
	switch trouble := i.trouble.Load(); {
	case trouble == nil:
		return nil
	case i.seen.Load():
		return server.Remark((*trouble).Error())
	default:
		return fmt.Errorf("it could not be used yet: %w", *trouble)
	}
}
