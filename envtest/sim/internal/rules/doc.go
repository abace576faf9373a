// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package rules holds what Kubernetes demands of objects and sets in them: the defaults, the
// initial values, the validation and the immutable fields of built-in kinds, and what a write may
// change.
package rules
