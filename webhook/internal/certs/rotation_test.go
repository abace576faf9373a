// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/envtest/fault"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/term"
)

// TestA1_EveryHandshakeSucceedsThroughRotationsAndKills runs three replicas. One is killed and
// replaced every 10 rotations. API servers lag until shortly before the CAs of their bundle expire.
func TestA1_EveryHandshakeSucceedsThroughRotationsAndKills(t *testing.T) {
	rotations := 60
	if os.Getenv("SETPOINT_FULL") != "" {
		rotations = 300
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.lag = options().CALifetime/2 - time.Minute
		for range 3 {
			w.start(options())
		}
		for n := 0; len(w.served) < rotations; n++ {
			w.pass(options().CALifetime / 2 * 10)
			w.kill(n % 3)
			w.pass(10 * time.Second)
			w.start(options())
			if t.Failed() || n > rotations {
				break
			}
		}
		w.checkNoKeys(w.secret())
		t.Logf("%d CAs signed leaves in use, %d different handshakes", len(w.served), len(w.verified))
	})
}

// TestA1_AReplicaWithAnOldSecretDoesNotReplaceANewerBundle delays one write of a bundle until
// another replica has put a new CA into it.
func TestA1_AReplicaWithAnOldSecretDoesNotReplaceANewerBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start(options())
		w.pass(14 * time.Minute)
		late := w.server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch", "apply"}, Resources: []string{"validatingwebhookconfigurations"}}, Times: 1, Hold: true, Deliver: true})
		defer late.Remove()
		w.reset(targets[0], "")
		w.start(options())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := strings.Count(w.bundle(targets[0]), "BEGIN"); n != 2 {
			t.Fatalf("the bundle has %d CAs before the late write", n)
		}
		before := w.object(targets[0]).GetResourceVersion()
		late.Release()
		synctest.Wait() // a replica may have repaired the bundle by then: compare versions
		testkit.Equal(t, w.object(targets[0]).GetResourceVersion(), before, "the late write of one CA replaced a bundle of two", fmt.Sprintf("version %s became", before))
	})
}

// TestA1_ANewCAWaitsForAllBundles keeps one target from being written.
func TestA1_ANewCAWaitsForAllBundles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.start(options())
		w.pass(time.Minute)
		first := r.leaf.Load().Leaf.AuthorityKeyId
		blocked := w.server.Add(fault.Rule{Match: fault.Match{Verbs: []string{"patch", "apply"}, Resources: []string{"customresourcedefinitions"}}, Cut: true})
		w.pass(20 * time.Minute)
		testkit.Equal(t, string(r.leaf.Load().Leaf.AuthorityKeyId), string(first), "a new CA signs although a bundle does not have it")
		testkit.ErrorContains(t, r.Check(t.Context()), "cannot write the caBundle of CustomResourceDefinition", "Check does not name the bundle")
		blocked.Remove()
		w.pass(3 * time.Minute)
		testkit.NotEqual(t, string(r.leaf.Load().Leaf.AuthorityKeyId), string(first), "the new CA does not sign after all bundles have it")
	})
}

// reset replaces a target's bundles, as a tool that applies the whole object.
func (w *world) reset(t Target, bundle string) {
	u := w.object(t)
	u.SetManagedFields(nil)
	if t.Kind == CustomResourceDefinition {
		config := u.Object["spec"].(map[string]any)["conversion"].(map[string]any)["webhook"].(map[string]any)["clientConfig"].(map[string]any)
		config["caBundle"] = bundle
	} else {
		for _, each := range u.Object["webhooks"].([]any) {
			each.(map[string]any)["clientConfig"].(map[string]any)["caBundle"] = bundle
		}
	}
	h := client.ForKind[*unstructured.Unstructured](w.api, t.Kind.gvk())
	testkit.NoError(w.t, testkit.Err(h.Update(term.Without(w.t.Context()), u)))
}
