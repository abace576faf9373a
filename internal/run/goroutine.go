// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/pprof"
	"strings"
)

// Goroutine returns the name of the calling goroutine in stacks, such as "goroutine 17".
func Goroutine() string {
	var buf [64]byte
	// The stack begins with "goroutine 17 [running]:".
	name, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), " [")
	return name
}

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

// Labelled returns the stacks of all goroutines with a pprof label, which new goroutines inherit,
// that contain the name of a function.
func Labelled(key, value, function string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	wanted := fmt.Sprintf("%q:%q", key, value) // the format of labels in a profile
	var found []string
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, wanted) && strings.Contains(block, function) {
			found = append(found, block)
		}
	}
	return strings.Join(found, "\n\n")
}
