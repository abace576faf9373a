// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package pagetest tests the page of package debug in Chromium. Its tests skip without one. It is a
// module of its own, so that the library does not require a browser's protocol.
package pagetest
