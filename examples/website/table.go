// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"
)

// table prints a row for each step as it happens, with the time since the start.
type table struct {
	out   io.Writer
	start time.Time
}

func newTable(out io.Writer) *table {
	t := &table{out: out, start: time.Now()}
	fmt.Fprintf(out, "%8s  %-13s  %s\n", "time", "step", "what happened")
	return t
}

func (t *table) row(step, format string, args ...any) {
	fmt.Fprintf(t.out, "%6.2f s  %-13s  %s\n", time.Since(t.start).Seconds(), step, fmt.Sprintf(format, args...))
}
