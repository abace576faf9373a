// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "ha: this operating system lacks the signals that suspend processes; run it on Linux or macOS")
	os.Exit(1)
}
