// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// errorLog logs errors of clients: the first 20 lines, then one in 10 seconds.
type errorLog struct {
	log       *slog.Logger
	sometimes rate.Sometimes
	left      atomic.Int64 // since the last logged one
}

func (e *errorLog) Write(line []byte) (int, error) {
	e.left.Add(1)
	if due(&e.sometimes) {
		log := e.log
		if unlogged := e.left.Swap(0) - 1; unlogged > 0 {
			log = log.With("unlogged", unlogged)
		}
		log.Info(string(bytes.TrimSpace(line)))
	}
	return len(line), nil
}

func due(s *rate.Sometimes) (now bool) {
	s.Do(func() { now = true })
	return now
}
