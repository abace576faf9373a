// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import "time"

func (x *exchange) cut() bool {
	if !x.sever() {
		return false
	}
	x.note("cut")
	return true
}

func (x *exchange) sever() bool {
	delivers := x.delivers()
	x.rules.mu.Lock()
	done := x.ended || x.severed
	x.severed = true
	x.rules.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if done || x.hangUp == nil {
		return false
	}
	x.hangUp()
	if x.cancel != nil && !delivers {
		x.cancel(errCut)
	}
	return true
}

func (x *exchange) cutInTimeLocked(f *Fault) {
	if f.rule.CutAfter == 0 {
		return
	}
	x.timers = append(x.timers, time.AfterFunc(f.rule.CutAfter, func() {
		x.rules.mu.Lock()
		removed := f.removed
		x.rules.mu.Unlock()
		if !removed {
			x.cut()
		}
	}))
}
