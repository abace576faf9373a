// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/setpoint-dev/setpoint/internal/argument"
	"github.com/setpoint-dev/setpoint/internal/object"
)

// Limits and patterns of metav1.Condition, which controller-gen puts into CRDs. The API server
// counts characters. Types and reasons are ASCII.
const (
	maxType    = 316
	maxReason  = 1024
	maxMessage = 32 * 1024
)

var (
	typePattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?` +
		`(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)
	reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
)

// Condition is a type of old conditions that [For] takes: from the status of an object, or from a
// generated Extract function.
type Condition interface {
	metav1.Condition | metav1ac.ConditionApplyConfiguration
}

// Set has the conditions of one object while a Reconcile computes its status. Decide each condition
// at most once: set, summarize, keep or remove it. Mistakes do not panic; [Set.Err], [Apply] and
// [Update] return them. A Set is not safe for concurrent use.
type Set struct {
	object   metav1.ObjectMeta // names, UID, generation, resourceVersion and deletionTimestamp
	all      []metav1.Condition
	decided  map[string]string // by type
	changed  bool
	mistakes []error
}

// For returns a Set for the status of obj, as it was read. old are the conditions that obj has; For
// does not change them.
func For[C Condition](obj metav1.Object, old []C) *Set {
	s := &Set{decided: map[string]string{}}
	if argument.IsNil(obj) {
		s.reject("the object is nil; give the one that the status is computed from")
		return s
	}
	s.object = metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		Generation: obj.GetGeneration(), ResourceVersion: obj.GetResourceVersion(), DeletionTimestamp: obj.GetDeletionTimestamp(),
	}
	for _, c := range old {
		condition := typed(c)
		if s.index(condition.Type) >= 0 {
			s.reject("the object has the condition %s twice; remove one, and declare listType=map and listMapKey=type in its CRD", condition.Type)
			continue
		}
		s.all = append(s.all, condition)
	}
	return s
}

func typed[C Condition](c C) metav1.Condition {
	switch c := any(c).(type) {
	case metav1.Condition:
		return c
	case metav1ac.ConditionApplyConfiguration:
		return metav1.Condition{
			Type: value(c.Type), Status: value(c.Status), Reason: value(c.Reason), Message: value(c.Message),
			ObservedGeneration: value(c.ObservedGeneration), LastTransitionTime: value(c.LastTransitionTime),
		}
	}
	return metav1.Condition{} // there is no other type
}

func value[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// True sets a condition to True. reason is one word for programs, such as AllReady; message is for
// people and may be empty. A message of more than 32 KiB is cut.
func (s *Set) True(conditionType, reason, message string) {
	s.set(conditionType, metav1.ConditionTrue, reason, message)
}

// False sets a condition to False. Reason and message are as for True.
func (s *Set) False(conditionType, reason, message string) {
	s.set(conditionType, metav1.ConditionFalse, reason, message)
}

// Unknown sets a condition to Unknown. Reason and message are as for True.
func (s *Set) Unknown(conditionType, reason, message string) {
	s.set(conditionType, metav1.ConditionUnknown, reason, message)
}

// Keep leaves a condition as it is, with its old observedGeneration. [Apply] needs it for
// conditions of your own that this Reconcile does not compute: an apply removes what it does not
// name.
func (s *Set) Keep(conditionType string) { s.decide(conditionType, "kept") }

// Remove removes a condition, if the object has it.
func (s *Set) Remove(conditionType string) {
	if i := s.index(conditionType); s.decide(conditionType, "removed") && i >= 0 {
		s.all, s.changed = slices.Delete(s.all, i, i+1), true
	}
}

// Conditions returns a new slice of all conditions of the object: those that were set, and the
// others as they are. Old conditions keep their order, new ones follow.
func (s *Set) Conditions() []metav1.Condition { return slices.Clone(s.all) }

// ApplyConfigurations returns the conditions that were set, summarized or kept, in the order of
// Conditions. Others may belong to another field owner.
func (s *Set) ApplyConfigurations() []*metav1ac.ConditionApplyConfiguration {
	var applied []*metav1ac.ConditionApplyConfiguration
	for _, c := range s.all {
		if s.decided[c.Type] == "" {
			continue
		}
		ac := metav1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithLastTransitionTime(c.LastTransitionTime)
		if c.ObservedGeneration != 0 {
			ac.WithObservedGeneration(c.ObservedGeneration)
		}
		applied = append(applied, ac)
	}
	return applied
}

// Err returns the mistakes so far, or nil: a type that the object has twice or that was decided
// twice, or a type or reason that the API server would refuse. A condition with a mistake keeps its
// old state.
func (s *Set) Err() error {
	if len(s.mistakes) == 0 {
		return nil
	}
	all := s.mistakes[0]
	for _, err := range s.mistakes[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return fmt.Errorf("status of %s: %w", s.name(), all)
}

func (s *Set) name() string { return object.Name(s.key()) }

func (s *Set) key() types.NamespacedName { return object.Key(&s.object) }

func (s *Set) set(conditionType string, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: cut(message),
		ObservedGeneration: s.object.Generation, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
	if err := check(conditionType, reason); err != nil {
		s.mistakes = append(s.mistakes, err)
		return
	}
	if !s.decide(conditionType, fmt.Sprintf("set to %s (%s)", status, reason)) {
		return
	}
	i := s.index(conditionType)
	if i < 0 {
		s.all, s.changed = append(s.all, c), true
		return
	}
	if old := s.all[i]; old.Status == status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.changed = s.changed || c != s.all[i]
	s.all[i] = c
}

func (s *Set) decide(conditionType, what string) bool {
	if before := s.decided[conditionType]; before != "" {
		s.reject("the condition %s is %s and then %s; decide each condition once", conditionType, before, what)
		return false
	}
	s.decided[conditionType] = what
	return true
}

func (s *Set) reject(format string, args ...any) {
	s.mistakes = append(s.mistakes, fmt.Errorf(format, args...))
}

func (s *Set) index(conditionType string) int {
	return slices.IndexFunc(s.all, func(c metav1.Condition) bool { return c.Type == conditionType })
}

func check(conditionType, reason string) error {
	switch {
	case conditionType == "":
		return errors.New("a condition has no type; give one, such as Available")
	case len(conditionType) > maxType:
		return fmt.Errorf("the condition %s... has a type of %d characters; at most %d are allowed", conditionType[:32], len(conditionType), maxType)
	case !typePattern.MatchString(conditionType):
		return fmt.Errorf("the condition %q has an invalid type; give one such as Available or example.com/Available", conditionType)
	case reason == "":
		return fmt.Errorf("the condition %s has no reason; give one word, such as RollingOut", conditionType)
	case len(reason) > maxReason:
		return fmt.Errorf("the condition %s has a reason of %d characters; at most %d are allowed", conditionType, len(reason), maxReason)
	case !reasonPattern.MatchString(reason):
		return fmt.Errorf("the condition %s has the reason %q; give one word of letters, digits, '_', ',' and ':', such as RollingOut", conditionType, reason)
	}
	return nil
}

func cut(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxMessage {
		return message
	}
	const end = "…"
	return strings.ToValidUTF8(message[:maxMessage-len(end)], "") + end
}
