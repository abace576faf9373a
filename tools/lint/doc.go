// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package lint pins golangci-lint. It is separate from module tools because the linter's two
// hundred dependencies conflict with controller-gen's.
package lint
