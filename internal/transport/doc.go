// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package transport is what every client.Client puts below its requests. It enters them in the
// ledger of their context, lets them pass the fence of their term, and refuses redirects that would
// send credentials elsewhere. [Wrap] installs it.
//
// It reads the answer to a write while the caller reads it: nothing is read ahead, held back or
// changed. Answers to reads, watches, logs and upgraded connections are not looked at.
package transport
