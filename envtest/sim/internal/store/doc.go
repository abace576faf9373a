// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package store has the objects of a server: by resource, with their history, their encodings and
// their versions, and backups. It never calls its users. Controllers take the changes from it.
package store
