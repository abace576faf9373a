// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package kinds describes the kinds that a server can serve: the built-in ones with their Go types,
// and the custom ones of CustomResourceDefinitions.
package kinds
