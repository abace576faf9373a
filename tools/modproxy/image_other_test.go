// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "testing"

func runIn(t *testing.T, _, _ string, _ ...string) {
	t.Helper()
	t.Skip("the image is for Linux")
}
