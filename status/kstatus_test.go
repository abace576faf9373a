// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/status"
)

// kstatus applies the rules that kstatus documents for kinds that it has no rules for: see
// pkg/kstatus/README.md in sigs.k8s.io/cli-utils. The first rule that fits decides.
func kstatus(t *testing.T, g *Gauge) string {
	t.Helper()
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	testkit.NoError(t, err)
	if at, _, _ := unstructured.NestedString(u, "metadata", "deletionTimestamp"); at != "" {
		return "Terminating"
	}
	observed, found, _ := unstructured.NestedInt64(u, "status", "observedGeneration")
	if generation, _, _ := unstructured.NestedInt64(u, "metadata", "generation"); found && observed != generation {
		return "InProgress"
	}
	conditions, _, _ := unstructured.NestedSlice(u, "status", "conditions")
	is := map[string]string{}
	for _, c := range conditions {
		c := c.(map[string]any)
		is[c["type"].(string)] = c["status"].(string)
	}
	switch {
	case is["Reconciling"] == "True" && is["Stalled"] == "True":
		return "Reconciling and Stalled" // the order decides
	case is["Reconciling"] == "True":
		return "InProgress"
	case is["Stalled"] == "True":
		return "Failed"
	case is["Ready"] != "" && is["Ready"] != "True":
		return "InProgress"
	}
	return "Current"
}

// TestKstatus_ReadsWhatIsMeant: after each of the three functions, from each state before, with
// and without status.observedGeneration.
func TestKstatus_ReadsWhatIsMeant(t *testing.T) {
	writes := map[string]func(*status.Set, string, string){
		"Current": (*status.Set).Current, "InProgress": (*status.Set).InProgress, "Failed": (*status.Set).Failed,
	}
	for before, first := range writes {
		for want, then := range writes {
			for _, observes := range []bool{false, true} {
				g := gauge(1)
				write := func(f func(*status.Set, string, string)) {
					s := setFor(g)
					f(s, "Reason", "message")
					testkit.NoError(t, s.Err())
					g.Status.Conditions = s.Conditions()
					if observes {
						g.Status.ObservedGeneration = g.Generation
					}
				}
				write(first)
				g.Generation++
				if got := kstatus(t, g); observes && got != "InProgress" {
					t.Errorf("%s, then another generation: kstatus returns %s", before, got)
				}
				write(then)
				testkit.Equal(t, kstatus(t, g), want, fmt.Sprintf("%s, then %s", before, want), "kstatus returns")
				g.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				testkit.Equal(t, kstatus(t, g), "Terminating", fmt.Sprintf("%s and deleted", want), "kstatus returns")
			}
		}
	}
}

// TestKstatus_ASummaryIsEnough: with Ready alone, kstatus waits until it is True. Without any
// condition an object is Current, so a new one looks finished.
func TestKstatus_ASummaryIsEnough(t *testing.T) {
	g := gauge(1)
	testkit.Equal(t, kstatus(t, g), "Current", "without conditions")
	for want, set := range map[string]func(*status.Set, string, string, string){
		"Current": (*status.Set).True, "InProgress": (*status.Set).False, "InProgress ": (*status.Set).Unknown,
	} {
		s := setFor(g)
		set(s, "Published", "Reason", "")
		s.Summarize(status.Ready, "Published")
		g.Status.Conditions = s.Conditions()
		if got := kstatus(t, g); got != want[:len(got)] || s.Err() != nil {
			t.Errorf("%s: kstatus returns %s, %v", want, got, s.Err())
		}
	}
}
