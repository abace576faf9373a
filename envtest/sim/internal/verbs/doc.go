// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package verbs answers the requests of an API: reads, writes, watches, subresources and discovery.
// It begins with API.Answer.
package verbs
