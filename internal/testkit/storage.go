// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package testkit has what the tests of several packages share.
package testkit

import (
	"flag"
	"fmt"
	"testing"

	"github.com/setpoint-dev/setpoint/cache"
)

// Storages runs the tests of a package once for each form in which caches can store objects: a
// TestMain gives it to goleak.VerifyTestMain. Benchmarks run once.
type Storages struct{ *testing.M }

// storages is the table. DefaultStorage depends on the kind.
var storages = []cache.Storage{cache.DefaultStorage, cache.Decoded, cache.Packed}

// current is changed between two runs of all tests.
var current cache.Storage

// Storage returns the form that the tests' caches must use.
func Storage() cache.Storage { return current }

// Run runs the tests. It returns the code of the last run that failed.
func (s Storages) Run() (code int) {
	flag.Parse()
	for _, current = range storages {
		fmt.Println("storage:", current)
		if failed := s.M.Run(); failed != 0 {
			code = failed
		}
		if flag.Lookup("test.bench").Value.String() != "" || flag.Lookup("test.list").Value.String() != "" {
			break
		}
	}
	return code
}
