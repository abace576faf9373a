// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"strings"
	"testing"

	"github.com/setpoint-dev/setpoint/children"
	"github.com/setpoint-dev/setpoint/envtest/sim"
	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/why"
)

// evidence returns the evidence of package why about the children of the last Reconcile.
func (w *world) evidence(owner string) string {
	w.t.Helper()
	a := why.For(w.t.Context(), why.Object{Kind: "ServiceAccount", Namespace: "default", Name: owner}, w.mgr)
	for _, line := range a.Answers[0].Evidence {
		if _, about, ok := strings.Cut(line, ": children that are not ready "); ok {
			return about
		}
	}
	return ""
}

// TestWhy_NamesChildrenThatAreNotReady: the evidence about an owner has its children that failed,
// wait or are not ready, until all are ready.
func TestWhy_NamesChildrenThatAreNotReady(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		db := rollout("db", "x")
		web := children.With(service("web"), children.After(db))
		w.want("a", configMap("one", "1"), web, db)
		want := "(2): Service web waits for Deployment db: 0 of 1 replicas exist; Deployment db is not ready: 0 of 1 replicas exist"
		testkit.Equal(t, w.evidence("a"), want)
		w.rollOut("db")
		testkit.Equal(t, w.evidence("a"), "", w.states("a"))
		w.want("b", configMap("one", "2"))
		if got := w.evidence("b"); !strings.HasPrefix(got, "(1): ConfigMap one has failed: it exists and belongs to the ServiceAccount a") {
			t.Errorf("of a failed child, the evidence is %q", got)
		}
	})
}

// TestWhy_NamesChildrenThatDelayADeletion: the evidence has what Delete waits for, and not what is
// gone.
func TestWhy_NamesChildrenThatDelayADeletion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.doomed("a", configMap("gone", "1"), configMap("held", "1"))
		w.edit(sim.ConfigMaps, "held", hold)
		w.deleteOwner("a")
		testkit.Equal(t, w.evidence("a"), "(1): ConfigMap held waits for the end of its deletion", w.states("a"))
	})
}
