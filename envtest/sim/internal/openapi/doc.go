// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package openapi writes the OpenAPI v3 documents of group versions.
package openapi
