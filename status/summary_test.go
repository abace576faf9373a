// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/status"
)

func TestSummarize_TheWorstDecides(t *testing.T) {
	old := metav1.Condition{Type: "Old", Status: "True", Reason: "Good", ObservedGeneration: 3}
	future := metav1.Condition{Type: "Future", Status: "True", Reason: "Good", ObservedGeneration: 5}
	// theirs observes no generation.
	theirs := metav1.Condition{Type: "Theirs", Status: "True", Reason: "Good"}
	for name, c := range map[string]struct {
		do   func(*status.Set)
		of   []string
		want string
	}{
		"all good": {func(s *status.Set) { s.True("A", "Full", "3 litres"); s.True("B", "Clean", "") }, []string{"A", "B", "Theirs"},
			`Ready=True AsExpected "A is True: 3 litres; B is True; Theirs is True" 4`},
		"one bad": {func(s *status.Set) { s.True("A", "Full", ""); s.False("B", "Dirty", "mud"); s.Unknown("C", "Dark", "") }, []string{"A", "C", "B"},
			`Ready=False Dirty "B is False: mud" 4`},
		"two bad": {func(s *status.Set) { s.False("A", "Empty", ""); s.False("B", "Dirty", "mud") }, []string{"A", "B"},
			`Ready=False Empty "A is False; B is False: mud" 4`},
		"unknown":               {func(s *status.Set) { s.True("A", "Full", ""); s.Unknown("B", "Dark", "") }, []string{"A", "B"}, `Ready=Unknown Dark "B is Unknown" 4`},
		"missing":               {func(s *status.Set) { s.True("A", "Full", "") }, []string{"A", "B"}, `Ready=Unknown ConditionMissing "B is missing" 4`},
		"outdated":              {func(*status.Set) {}, []string{"Old"}, `Ready=Unknown ConditionOutdated "Old was computed for generation 3, not 4" 4`},
		"of a later generation": {func(*status.Set) {}, []string{"Future"}, `Ready=Unknown ConditionOutdated "Future was computed for generation 5, not 4" 4`},
		"negative bad":          {func(s *status.Set) { s.True("A", "Full", ""); s.True("Stalled", "Broken", "no pump") }, []string{"A", status.Not("Stalled")}, `Ready=False Broken "Stalled is True: no pump" 4`},
		"negative good": {func(s *status.Set) { s.False("Degraded", "Fine", "") }, []string{status.Not("Degraded"), status.Not("Stalled")},
			`Ready=True AsExpected "Degraded is False; Stalled is absent" 4`},
		"negative unknown": {func(s *status.Set) { s.Unknown("Degraded", "Dark", "") }, []string{status.Not("Degraded")}, `Ready=Unknown Dark "Degraded is Unknown" 4`},
	} {
		t.Run(name, func(t *testing.T) {
			s := setFor(gauge(4, old, future, theirs))
			c.do(s)
			s.Summarize("Ready", c.of...)
			all := s.Conditions()
			testkit.Equal(t, text(all[len(all)-1:]), c.want)
			testkit.Equal(t, s.Err(), nil)
		})
	}
}

func TestKstatus_TheThreeConditions(t *testing.T) {
	g := gauge(1)
	for _, c := range []struct {
		do   func(*status.Set, string, string)
		want string
	}{
		{(*status.Set).InProgress, "Ready=False R \"m\" 1\nReconciling=True R \"m\" 1"},
		{(*status.Set).Failed, "Ready=False R \"m\" 1\nStalled=True R \"m\" 1"},
		{(*status.Set).Current, `Ready=True R "m" 1`},
	} {
		s := setFor(g)
		c.do(s, "R", "m")
		g.Status.Conditions = s.Conditions()
		testkit.Equal(t, text(g.Status.Conditions), c.want)
		testkit.Equal(t, s.Err(), nil)
	}
}
