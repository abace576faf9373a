// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"runtime"
)

// InBubble reports whether the caller runs in a synctest bubble. The runtime says so only in the
// headers of its stack traces.
func InBubble() bool {
	var trace [128]byte
	header, _, _ := bytes.Cut(trace[:runtime.Stack(trace[:], false)], []byte("\n"))
	return bytes.Contains(header, []byte("synctest bubble"))
}
