// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "ha: it suspends processes with signals that this operating system does not have; run it on Linux or macOS")
	os.Exit(1)
}
