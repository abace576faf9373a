// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package bubble finds out whether code runs in a testing/synctest bubble.
package bubble

import (
	"bytes"
	"runtime"
)

// Inside reports whether the caller runs in a synctest bubble. The runtime says so only in the
// headers of its stack traces.
func Inside() bool {
	var trace [128]byte
	header, _, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}
