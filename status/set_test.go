// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/testkit"
	"github.com/setpoint-dev/setpoint/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func gauge(generation int64, conditions ...metav1.Condition) *Gauge {
	return &Gauge{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "oil", UID: "1", ResourceVersion: "1", Generation: generation},
		Status:     GaugeStatus{Conditions: conditions},
	}
}

func setFor(g *Gauge) *status.Set { return status.For(g, g.Status.Conditions) }

// text has one line for each condition.
func text(conditions []metav1.Condition) string {
	var lines []string
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s %q %d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration))
	}
	return strings.Join(lines, "\n")
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	testkit.NoError(t, err)
	return string(data)
}

// wants fails the test unless err has all the words, in one line.
func wants(t *testing.T, err error, words ...string) {
	t.Helper()
	testkit.NotEqual(t, err, nil)
	for _, w := range words {
		testkit.ErrorContains(t, err, w)
	}
	testkit.NotContains(t, fmt.Sprint(err), "\n")
}

func TestSet_ObservesTheGenerationOfEachConditionThatIsSet(t *testing.T) {
	g := gauge(4,
		metav1.Condition{Type: "Theirs", Status: "True", Reason: "Kept", ObservedGeneration: 2},
		metav1.Condition{Type: "Ready", Status: "True", Reason: "Old", ObservedGeneration: 3},
		metav1.Condition{Type: "Gone", Status: "True", Reason: "Old", ObservedGeneration: 3})
	s := setFor(g)
	s.False("Filled", "Filling", "2 of 3 litres")
	s.True("Ready", "Full", "")
	s.Unknown("example.com/Clean", "NotSeen", "no light")
	s.Remove("Gone")
	s.Remove("Never")
	const want = `Theirs=True Kept "" 2
Ready=True Full "" 4
Filled=False Filling "2 of 3 litres" 4
example.com/Clean=Unknown NotSeen "no light" 4`
	testkit.Equal(t, text(s.Conditions()), want)
	testkit.Equal(t, s.Err(), nil)
	testkit.Equal(t, g.Status.Conditions[1].Reason, "Old", "the object was changed")
}

// TestSet_TransitionTimeChangesOnlyWithTheStatus: and it has whole seconds, as the API server
// stores it.
func TestSet_TransitionTimeChangesOnlyWithTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gauge(1)
		at := map[string]time.Time{}
		for i, c := range []struct {
			set     func(*status.Set)
			changes bool
		}{
			{func(s *status.Set) { s.False("Ready", "Filling", "1 of 3") }, true},
			{func(s *status.Set) { s.False("Ready", "Filling", "2 of 3") }, false},
			{func(s *status.Set) { s.False("Ready", "Leaking", "1 of 3") }, false},
			{func(s *status.Set) { s.True("Ready", "Full", "") }, true},
			{func(s *status.Set) { s.Unknown("Ready", "Dark", "") }, true},
			{func(s *status.Set) { s.Unknown("Ready", "Dark", "") }, false},
		} {
			time.Sleep(90*time.Second + 300*time.Millisecond)
			g.Generation++
			s := setFor(g)
			c.set(s)
			g.Status.Conditions = s.Conditions()
			now := g.Status.Conditions[0].LastTransitionTime.Time
			testkit.Equal(t, now.Equal(at["Ready"]), !c.changes, i)
			if c.changes && !now.Equal(time.Now().Truncate(time.Second)) {
				t.Errorf("%d: the time is %s, not now", i, now)
			}
			at["Ready"] = now
		}
	})
}

// TestSet_AnUnchangedSetHasTheSameBytes: also when the conditions are set in another order, and
// after the API server has stored them.
func TestSet_AnUnchangedSetHasTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gauge(4)
		first := setFor(g)
		first.True("A", "Good", "x\xffy")
		first.False("B", "Bad", "")
		applied, stored := inJSON(t, first.ApplyConfigurations()), inJSON(t, first.Conditions())
		testkit.NoError(t, json.Unmarshal([]byte(stored), &g.Status.Conditions))
		time.Sleep(time.Hour)
		second := setFor(g)
		second.False("B", "Bad", "")
		second.True("A", "Good", "x\xffy")
		testkit.Equal(t, inJSON(t, second.ApplyConfigurations()), applied, fmt.Sprintf("applied %s and then", applied))
		testkit.Equal(t, inJSON(t, second.Conditions()), stored)
		testkit.SlicesEqual(t, second.Conditions(), g.Status.Conditions)
	})
}

// TestSet_OfApplyConfigurations: old conditions may come from a generated Extract function.
func TestSet_OfApplyConfigurations(t *testing.T) {
	before := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	old := []metav1ac.ConditionApplyConfiguration{
		*metav1ac.Condition().WithType("A").WithStatus(metav1.ConditionTrue).WithReason("Good").WithLastTransitionTime(before).WithObservedGeneration(3),
		*metav1ac.Condition().WithType("B").WithStatus(metav1.ConditionTrue).WithReason("Good").WithLastTransitionTime(before).WithObservedGeneration(3),
		*metav1ac.Condition().WithType("Theirs").WithStatus(metav1.ConditionTrue).WithReason("Good").WithLastTransitionTime(before),
		*metav1ac.Condition().WithType("C").WithStatus(metav1.ConditionTrue),
	}
	s := status.For(gauge(4), old)
	s.True("A", "Good", "")
	s.Keep("B")
	s.Keep("Never")
	s.Remove("C")
	const want = `[{"type":"A","status":"True","observedGeneration":4,"lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Good","message":""},` +
		`{"type":"B","status":"True","observedGeneration":3,"lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Good","message":""}]`
	testkit.Equal(t, inJSON(t, s.ApplyConfigurations()), want)
	testkit.Equal(t, s.Err(), nil)
}

func TestSet_Mistakes(t *testing.T) {
	twice := []metav1.Condition{{Type: "Ready", Status: "True"}, {Type: "Other"}, {Type: "Ready", Status: "False"}}
	for name, c := range map[string]struct {
		old   []metav1.Condition
		do    func(*status.Set)
		words []string
	}{
		"twice in the object": {twice, func(*status.Set) {}, []string{"the object has the condition Ready twice", "listType=map"}},
		"set twice": {nil, func(s *status.Set) { s.True("Ready", "Full", ""); s.False("Ready", "Empty", "") },
			[]string{"the condition Ready is set to True (Full) and then set to False (Empty)", "once"}},
		"set and removed":     {nil, func(s *status.Set) { s.True("Ready", "Full", ""); s.Remove("Ready") }, []string{"Ready is set to True (Full) and then removed"}},
		"kept and set":        {nil, func(s *status.Set) { s.Keep("Ready"); s.True("Ready", "Full", "") }, []string{"Ready is kept and then set"}},
		"summarized twice":    {nil, func(s *status.Set) { s.Current("Full", ""); s.Summarize("Ready", "A") }, []string{"Ready is set to True (Full) and then set to Unknown (ConditionMissing)"}},
		"no type":             {nil, func(s *status.Set) { s.True("", "Full", "") }, []string{"a condition has no type"}},
		"no reason":           {nil, func(s *status.Set) { s.True("Ready", "", "m") }, []string{"the condition Ready has no reason"}},
		"a reason of words":   {nil, func(s *status.Set) { s.True("Ready", "all is well", "") }, []string{"the condition Ready has the reason", `"all is well"`, "one word"}},
		"a long reason":       {nil, func(s *status.Set) { s.True("Ready", strings.Repeat("a", 1025), "") }, []string{"the condition Ready has a reason of 1025 characters; at most 1024"}},
		"a type of words":     {nil, func(s *status.Set) { s.True("is ready", "Full", "") }, []string{`the condition "is ready" has an invalid type`}},
		"a long type":         {nil, func(s *status.Set) { s.True(strings.Repeat("a", 317), "Full", "") }, []string{"317 characters; at most 316"}},
		"a summary of none":   {nil, func(s *status.Set) { s.Summarize("Ready") }, []string{"the condition Ready summarizes no conditions"}},
		"a summary of itself": {nil, func(s *status.Set) { s.Summarize("Ready", "A", status.Not("Ready")) }, []string{"the condition Ready summarizes itself"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := status.For(gauge(4), c.old)
			c.do(s)
			wants(t, s.Err(), append(c.words, "status of default/oil: ")...)
		})
	}
	wants(t, status.For[metav1.Condition](nil, nil).Err(), "the object is nil")
	wants(t, status.For[metav1.Condition]((*Gauge)(nil), nil).Err(), "the object is nil")
}

func TestSet_CutsALongMessage(t *testing.T) {
	s := setFor(gauge(1))
	s.False("Ready", "Failed", strings.Repeat("€", 20_000))
	got := s.Conditions()[0].Message
	if len(got) > 32*1024 || len(got) < 32*1024-6 || !strings.HasSuffix(got, "€…") || s.Err() != nil {
		t.Errorf("%d bytes, ending in %q, %v", len(got), got[len(got)-9:], s.Err())
	}
}
