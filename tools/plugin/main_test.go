// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"
)

func TestRun_RefusesAWrongVersion(t *testing.T) {
	err := run(t.Context(), "../..", "0.1", filepath.Join(t.TempDir(), "out"))
	if want := `"0.1" is not a version of the form v0.1.0; write make plugin VERSION=v0.1.0`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
