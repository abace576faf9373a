// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package crd

// Schemas is for a server whose Load may fail.
var Schemas schemas
