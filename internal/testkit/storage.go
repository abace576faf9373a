// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package testkit has what the tests of several packages share.
package testkit

import (
	"os"

	"github.com/setpoint-dev/setpoint/cache"
)

// storages is the table of the forms in which caches can store objects, by the values of the
// environment variable SETPOINT_STORAGE. Two forms in one process would share client-go's state,
// such as the time of its last error, which is in the future of a later synctest bubble.
var storages = map[string]cache.Storage{"": cache.DefaultStorage, "decoded": cache.Decoded, "packed": cache.Packed}

// Storage returns the form that the tests' caches must use.
func Storage() cache.Storage { return storages[os.Getenv("SETPOINT_STORAGE")] }
