// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package storages runs the tests of a package with each form in which caches can store objects.
package storages

import (
	"flag"
	"fmt"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/setpoint-dev/setpoint/cache"
)

// Main runs the tests of a package once for each form: a TestMain gives it to
// goleak.VerifyTestMain. Benchmarks and the race detector, which is slow, use only the first form.
type Main struct{ *testing.M }

// storages is the table. DefaultStorage depends on the kind.
var storages = []cache.Storage{cache.DefaultStorage, cache.Decoded, cache.Packed}

// current is changed between two runs of all tests.
var current cache.Storage

// Current returns the form that the tests' caches must use.
func Current() cache.Storage { return current }

// Run runs the tests. It returns the code of the last run that failed.
func (m Main) Run() (code int) {
	flag.Parse()
	// The last handler would sleep until the time of an error in an earlier synctest bubble.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	for _, current = range storages {
		fmt.Println("storage:", current)
		if failed := m.M.Run(); failed != 0 {
			code = failed
		}
		if race || set("bench") || set("fuzz") || set("list") {
			break
		}
	}
	return code
}

func set(name string) bool { return flag.Lookup("test."+name).Value.String() != "" }
