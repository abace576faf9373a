// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// secretWrites returns how often the Secret was created or updated.
func (w *world) secretWrites() int {
	return w.server.Count("create", sim.Secrets) + w.server.Count("update", sim.Secrets)
}

// reinstall deletes the operator with its Secret and its webhook configuration, and installs it
// again. The CustomResourceDefinition stays, with its bundle.
func (w *world) reinstall(o Options) *replica {
	if len(w.replicas) > 0 {
		w.kill(0)
		w.remove()
		w.reset(targets[0], "")
	}
	return w.start(o)
}

// TestReinstall_ThirtyInARowKeepAValidCertificate reinstalls within the lifetime of the CAs.
func TestReinstall_ThirtyInARowKeepAValidCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := newWorld(t), Options{Secret: secretKey, DNSNames: []string{serverName}}
		most := 0
		for install := 1; install <= 30; install++ {
			before := w.secretWrites()
			r := w.reinstall(o)
			w.pass(3 * time.Minute)
			if err := r.Check(t.Context()); err != nil {
				t.Fatalf("install %d wrote the Secret %d times in 3 minutes: %v", install, w.secretWrites()-before, err)
			}
			most = max(most, w.secretWrites()-before)
		}
		testkit.AtMost(t, most, 4)
		testkit.AtMost(t, strings.Count(w.bundle(targets[0]), "BEGIN"), maxAuthorities)
		w.pass(26 * time.Hour)
		testkit.Equal(t, strings.Count(w.bundle(targets[0]), "BEGIN"), 1, "the bundle has CAs, not only that of the last install, after all leaves of the others have expired")
		t.Logf("at most %d writes of the Secret for an install", most)
	})
}

// TestA1_AnOldCALeavesWhenItsLastLeafHasExpired reinstalls while a replica of the old
// installation still serves, but does not act.
func TestA1_AnOldCALeavesWhenItsLastLeafHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		old := w.start(options())
		w.pass(2 * time.Minute)
		old.stop()
		w.remove()
		w.start(options())
		w.start(options())
		w.pass(time.Until(old.leaf.Load().Leaf.NotAfter) - 30*time.Second)
		w.kill(0)
		testkit.Equal(t, strings.Count(w.bundle(targets[0]), "BEGIN"), 2, "the bundle has CAs while a leaf of the old one is in use")
		before := w.secretWrites()
		w.pass(4 * time.Minute)
		testkit.Equal(t, strings.Count(w.bundle(targets[0]), "BEGIN"), 1, "the bundle has CAs after the leaves of the old one have expired")
		testkit.AtMost(t, w.secretWrites()-before, 2)
	})
}
