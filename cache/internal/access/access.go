// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package access closes methods of package cache to all but the packages below it.
package access

// Factory is an argument of methods that only package cache/factory calls.
type Factory struct{}
