// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ReasonAsExpected is the reason of a summary that is True.
	ReasonAsExpected = "AsExpected"
	// ReasonMissing is the reason of an Unknown summary: the object lacks a condition.
	ReasonMissing = "ConditionMissing"
	// ReasonOutdated is the reason of an Unknown summary: a condition was computed for another
	// generation of the object, usually an older one.
	ReasonOutdated = "ConditionOutdated"
)

const not = "!"

// Not marks a condition as good when it is False or absent, such as Stalled or Degraded, for
// Summarize.
func Not(conditionType string) string { return not + conditionType }

// Summarize sets one condition, named by into, from others, as they are at the call: to False if
// one of them is bad, else to Unknown if one is unknown, else to True. A condition is bad when it
// is False, or True if marked with [Not]. It is unknown if the object does not have it, or if it
// observed another generation.
//
// The reason is from the first condition that decides the summary, the message from all of them.
//
//	s.Summarize(status.Ready, "Available", "Published", status.Not(status.Stalled))
func (s *Set) Summarize(into string, of ...string) {
	if len(of) == 0 {
		s.reject("the condition %s summarizes no conditions; name them", into)
		return
	}
	status, reason, messages := metav1.ConditionTrue, ReasonAsExpected, []string{}
	for _, name := range of {
		c := s.part(name)
		if c.Type == into {
			s.reject("the condition %s summarizes itself; name others", into)
			return
		}
		if worse(c.Status, status) {
			status, reason, messages = c.Status, c.Reason, nil
		}
		if c.Status == status {
			messages = append(messages, c.Message)
		}
	}
	s.set(into, status, reason, strings.Join(messages, "; "))
}

// part returns a condition of a summary with positive polarity, and a message that names it.
func (s *Set) part(name string) metav1.Condition {
	conditionType, negative := strings.CutPrefix(name, not)
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionUnknown}
	i := s.index(conditionType)
	switch {
	case i < 0 && negative:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonAsExpected, conditionType+" is absent"
		return c
	case i < 0:
		c.Reason, c.Message = ReasonMissing, conditionType+" is missing"
		return c
	}
	have := s.all[i]
	if observed := have.ObservedGeneration; outdated(observed, s.object.Generation) {
		c.Reason = ReasonOutdated
		c.Message = fmt.Sprintf("%s was computed for generation %d, not %d", conditionType, observed, s.object.Generation)
		return c
	}
	c.Status, c.Reason, c.Message = have.Status, have.Reason, fmt.Sprintf("%s is %s", conditionType, have.Status)
	if have.Message != "" {
		c.Message += ": " + have.Message
	}
	if negative {
		c.Status = opposite(have.Status)
	}
	return c
}

func opposite(s metav1.ConditionStatus) metav1.ConditionStatus {
	switch s {
	case metav1.ConditionTrue:
		return metav1.ConditionFalse
	case metav1.ConditionFalse:
		return metav1.ConditionTrue
	}
	return s
}

func worse(a, b metav1.ConditionStatus) bool { return rank(a) > rank(b) }

func rank(s metav1.ConditionStatus) int {
	switch s {
	case metav1.ConditionTrue:
		return 0
	case metav1.ConditionFalse:
		return 2
	}
	return 1
}
