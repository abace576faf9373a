// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/client"
)

// readiness reports whether obj is as its spec asks for. reason is a clause that fits after a
// colon. The rules are from kstatus, in sigs.k8s.io/cli-utils. One rule differs: a failed Pod is
// not ready.
func readiness(kind schema.GroupKind, obj client.Object) (ready bool, reason string) {
	fields, err := content(obj)
	if err != nil {
		return false, err.Error()
	}
	s := state(fields)
	reason = cmp.Or(s.general(), s.special(kind.String()))
	return reason == "", reason
}

// state is the content of an object in its unstructured form. A method that returns a reason
// returns "" if the object is ready.
type state map[string]any

func (s state) general() string {
	generation := s.number(0, "metadata", "generation")
	observed := s.number(generation, "status", "observedGeneration")
	return cmp.Or(
		when(s.text("metadata", "deletionTimestamp") != "", "is being deleted"),
		when(generation != 0 && observed != generation, "its controller has not seen generation %d", generation),
		s.not("Stalled", "True"),
		s.not("Reconciling", "True"),
	)
}

func (s state) special(kind string) string {
	switch kind {
	case "Deployment.apps":
		return s.deployment()
	case "StatefulSet.apps":
		return s.statefulSet()
	case "DaemonSet.apps":
		want := s.number(0, "status", "desiredNumberScheduled")
		return cmp.Or(
			when(s.field("status", "observedGeneration") == nil, "its controller has not seen it"),
			s.fewer(want, "currentNumberScheduled", "are scheduled"),
			s.fewer(want, "updatedNumberScheduled", "are updated"),
			s.fewer(want, "numberAvailable", "are available"),
			s.fewer(want, "numberReady", "are ready"),
		)
	case "ReplicaSet.apps":
		want := s.number(1, "spec", "replicas")
		return cmp.Or(
			s.not("ReplicaFailure", "True"),
			s.fewer(want, "fullyLabeledReplicas", "are labeled"),
			s.fewer(want, "availableReplicas", "are available"),
			s.fewer(want, "readyReplicas", "are ready"),
			s.surplus(want),
		)
	case "Pod":
		return s.pod()
	case "Job.batch": // ready once it runs
		done := s.must("Complete") == "" || s.must("Suspended") == ""
		return cmp.Or(s.not("Failed", "True"), when(!done && s.text("status", "startTime") == "", "has not started"))
	case "PersistentVolumeClaim":
		return when(s.text("status", "phase") != "Bound", "is not bound")
	case "Service":
		hasAddress := s.text("spec", "clusterIP") != "" || s.field("status", "loadBalancer", "ingress") != nil
		return when(s.text("spec", "type") == "LoadBalancer" && !hasAddress, "has no address")
	case "CustomResourceDefinition.apiextensions.k8s.io":
		return cmp.Or(s.not("NamesAccepted", "False"), s.must("Established"))
	case "PodDisruptionBudget.policy", "CronJob.batch", "Secret", "ConfigMap":
		return ""
	}
	if s.condition("Ready") == nil {
		return ""
	}
	return s.must("Ready")
}

func (s state) deployment() string {
	want, progressing := s.number(1, "spec", "replicas"), s.condition("Progressing")
	// Without a deadline, the Deployment controller does not set the condition.
	deadline := s.number(math.MaxInt32, "spec", "progressDeadlineSeconds") != math.MaxInt32
	complete := progressing["status"] == "True" && progressing["reason"] == "NewReplicaSetAvailable"
	return cmp.Or(
		when(progressing["reason"] == "ProgressDeadlineExceeded", "%s", progressing),
		s.fewer(want, "replicas", "exist"),
		s.fewer(want, "updatedReplicas", "are updated"),
		s.surplus(want),
		s.fewer(s.number(0, "status", "updatedReplicas"), "availableReplicas", "are available"),
		s.fewer(want, "readyReplicas", "are ready"),
		when(deadline && !complete, "its new ReplicaSet is not available"),
		s.must("Available"),
	)
}

func (s state) statefulSet() string {
	if s.text("spec", "updateStrategy", "type") == "OnDelete" {
		return ""
	}
	want := s.number(1, "spec", "replicas")
	reason := cmp.Or(s.fewer(want, "replicas", "exist"), s.fewer(want, "readyReplicas", "are ready"), s.surplus(want))
	if partition := s.number(-1, "spec", "updateStrategy", "rollingUpdate", "partition"); partition >= 0 {
		return cmp.Or(reason, s.fewer(want-partition, "updatedReplicas", "are updated"))
	}
	return cmp.Or(reason, s.fewer(want, "currentReplicas", "are current"),
		when(s.text("status", "currentRevision") != s.text("status", "updateRevision"), "its rollout is not complete"))
}

func (s state) pod() string {
	switch s.text("status", "phase") {
	case "Succeeded":
		return ""
	case "Running":
		return s.must("Ready")
	case "Failed":
		return "has failed"
	default:
		return cmp.Or(s.not("PodScheduled", "False"), "is not running")
	}
}

// fewer returns a reason if the number in the status is below want.
func (s state) fewer(want int64, name, what string) string {
	n := s.number(0, "status", name)
	return when(n < want, "%d of %d replicas %s", n, want, what)
}

// surplus returns a reason if there are more replicas than wanted.
func (s state) surplus(want int64) string {
	n := s.number(0, "status", "replicas")
	return when(n > want, "%d replicas exist, %d are wanted", n, want)
}

// not returns a reason if a condition has the status, and must if it is not True.
func (s state) not(name, status string) string {
	c := s.condition(name)
	return when(c["status"] == status, "%s", c)
}

func (s state) must(name string) string {
	c := s.condition(name)
	return cmp.Or(when(c == nil, "condition %s is missing", name), when(c["status"] != "True", "%s", c))
}

func (s state) field(path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(s, path...)
	return v
}

func (s state) text(path ...string) string {
	v, _ := s.field(path...).(string)
	return v
}

func (s state) number(absent int64, path ...string) int64 {
	switch n := s.field(path...).(type) {
	case int64:
		return n
	case float64: // decoded by encoding/json
		return int64(n)
	}
	return absent
}

func (s state) condition(name string) condition {
	all, _ := s.field("status", "conditions").([]any)
	for _, c := range all {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return nil
}

type condition map[string]any

func (c condition) String() string {
	clause := fmt.Sprintf("condition %v is %v", c["type"], c["status"])
	for _, name := range []string{"reason", "message"} {
		if v, _ := c[name].(string); v != "" {
			clause += ": " + v
		}
	}
	return clause
}

func when(applies bool, reason string, args ...any) string {
	if !applies {
		return ""
	}
	return fmt.Sprintf(reason, args...)
}
