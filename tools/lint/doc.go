// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package lint pins golangci-lint. It is a module apart from tools because the two hundred modules that the linter
// stands on do not agree with those of controller-gen.
package lint
