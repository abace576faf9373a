// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/setpoint-dev/setpoint/cache"
)

// Goal is a condition that [Await] waits for.
type Goal struct {
	conditionType string
	status        metav1.ConditionStatus
}

// True is the goal that a condition is True.
func True(conditionType string) Goal { return Goal{conditionType, metav1.ConditionTrue} }

// False is the goal that a condition is False.
func False(conditionType string) Goal { return Goal{conditionType, metav1.ConditionFalse} }

// text returns the goal in the form Ready=True.
func (g Goal) text() string { return g.conditionType + "=" + string(g.status) }

// state is what the status of an object shows. Kinds such as Deployment have a type of their own
// for conditions, so fields are read by name.
type state struct {
	generation int64
	observed   int64 // 0 if absent
	conditions []metav1.Condition
}

func stateOf(obj cache.Object) (state, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return state{}, err
	}
	s := state{generation: obj.GetGeneration()}
	s.observed, _, err = unstructured.NestedInt64(content, "status", "observedGeneration")
	if err != nil {
		return s, err
	}
	list, _, err := unstructured.NestedSlice(content, "status", "conditions")
	if err != nil {
		return s, err
	}
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok {
			return s, fmt.Errorf("status.conditions has a %T, not an object", item)
		}
		var c metav1.Condition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c); err != nil {
			return s, err
		}
		s.conditions = append(s.conditions, c)
	}
	return s, nil
}

// outdated reports whether a status is not for this generation. observed is 0 if the status names
// none. A later generation is a mistake, or the status was copied from another object.
func outdated(observed, generation int64) bool { return observed != 0 && observed != generation }

func describe(obj cache.Object, goals []Goal) string {
	if obj == nil {
		return "it does not exist"
	}
	s, err := stateOf(obj)
	if err != nil {
		return "its status cannot be read: " + err.Error()
	}
	for _, g := range goals {
		c := meta.FindStatusCondition(s.conditions, g.conditionType)
		if c == nil || c.Status != g.status || outdated(s.observed, s.generation) || outdated(c.ObservedGeneration, s.generation) {
			return s.String()
		}
	}
	return ""
}

func (s state) String() string {
	var parts []string
	if outdated(s.observed, s.generation) {
		parts = append(parts, fmt.Sprintf("its status is of generation %d, not %d", s.observed, s.generation))
	}
	for _, c := range s.conditions {
		part := fmt.Sprintf("%s=%s", c.Type, c.Status)
		if about := strings.TrimSuffix(c.Reason+": "+c.Message, ": "); about != "" {
			part += " (" + about + ")"
		}
		if outdated(c.ObservedGeneration, s.generation) {
			part += fmt.Sprintf(" of generation %d, not %d", c.ObservedGeneration, s.generation)
		}
		parts = append(parts, part)
	}
	if len(s.conditions) == 0 {
		parts = append(parts, "it has no conditions")
	}
	return strings.Join(parts, "; ")
}
