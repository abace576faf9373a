// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// cpuOf returns the processor time of a process in steps of 10 ms (Linux only); 0 if it has ended.
func cpuOf(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11], &user); err != nil {
		return 0
	}
	if _, err := fmt.Sscan(fields[12], &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
