// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run

import "runtime"

const (
	// MostStacks limits the result of Stacks, in bytes.
	MostStacks = 64 << 20
	mostStack  = 16 << 10
)

// Stacks returns the stacks of all goroutines, separated by empty lines.
func Stacks() string {
	for size := 256 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size || size >= MostStacks {
			return string(buf[:n])
		}
	}
}

// Shorten truncates a stack for a report about one goroutine.
func Shorten(stack string) string {
	if len(stack) > mostStack {
		return stack[:mostStack] + "\n...more was left out"
	}
	return stack
}
