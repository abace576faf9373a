// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// TestNotes_AreBounded: the notes of a key are cut between two characters. With too many keys, one
// is forgotten. A key without notes takes no memory.
func TestNotes_AreBounded(t *testing.T) {
	var n keyNotes[int]
	n.keep(0, []string{"a", strings.Repeat("ä", mostNotes)})
	if got := n.of(0); len(got) != 1 || !strings.Contains(got[0], ": a; ää") || !strings.HasSuffix(got[0], "ää …") || len(got[0]) > mostNotes+100 {
		t.Errorf("got %q", got)
	}
	n.keep(0, nil)
	if got := n.of(0); got != nil || len(n.keys) != 0 {
		t.Errorf("%q is left, %d keys", got, len(n.keys))
	}
	for key := range mostNoted + 10 {
		n.keep(key, []string{"a"})
		if len(n.keys) > mostNoted || n.of(key) == nil {
			t.Fatalf("%d keys; of the last one: %q", len(n.keys), n.of(key))
		}
	}
	for key := range mostNoted + 10 {
		n.keep(key, nil)
	}
	testkit.Equal(t, len(n.keys), 0)
	testkit.Equal(t, n.n.Load(), 0)
}
