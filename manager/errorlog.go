// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// errorLog is where a server writes what is wrong with its clients: the first 20 lines, and then one in 10 seconds, because any
// client can cause as many as it likes.
type errorLog struct {
	log       *slog.Logger
	sometimes rate.Sometimes
	left      atomic.Int64 // lines that were not logged
}

func newErrorLog(log *slog.Logger) *errorLog {
	return &errorLog{log: log, sometimes: rate.Sometimes{First: 20, Interval: 10 * time.Second}}
}

// Write implements io.Writer: each call is a line.
func (e *errorLog) Write(line []byte) (int, error) {
	e.left.Add(1)
	now := false
	e.sometimes.Do(func() { now = true })
	if now {
		e.log.Info(string(bytes.TrimSpace(line)), "notLogged", e.left.Swap(0)-1)
	}
	return len(line), nil
}
