// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package children

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/internal/testkit"
)

// kinds has what the tests call a kind.
var kinds = map[string]struct {
	apiVersion string
	typed      func() client.Object
}{
	"ConfigMap":                {"v1", func() client.Object { return &corev1.ConfigMap{} }},
	"CronJob":                  {"batch/v1", func() client.Object { return &batchv1.CronJob{} }},
	"CustomResourceDefinition": {"apiextensions.k8s.io/v1", nil},
	"DaemonSet":                {"apps/v1", func() client.Object { return &appsv1.DaemonSet{} }},
	"Deployment":               {"apps/v1", func() client.Object { return &appsv1.Deployment{} }},
	"Job":                      {"batch/v1", func() client.Object { return &batchv1.Job{} }},
	"PersistentVolumeClaim":    {"v1", func() client.Object { return &corev1.PersistentVolumeClaim{} }},
	"Pod":                      {"v1", func() client.Object { return &corev1.Pod{} }},
	"PodDisruptionBudget":      {"policy/v1", func() client.Object { return &policyv1.PodDisruptionBudget{} }},
	"ReplicaSet":               {"apps/v1", func() client.Object { return &appsv1.ReplicaSet{} }},
	"Secret":                   {"v1", func() client.Object { return &corev1.Secret{} }},
	"Service":                  {"v1", func() client.Object { return &corev1.Service{} }},
	"StatefulSet":              {"apps/v1", func() client.Object { return &appsv1.StatefulSet{} }},
	"Gadget":                   {"test.dev/v1", nil},
	"Deployment of test.dev":   {"test.dev/v1", nil},
}

const (
	complete  = `{type: Progressing, status: "True", reason: NewReplicaSetAvailable}`
	available = `{type: Available, status: "True"}`
	three     = `replicas: 3, updatedReplicas: 3, availableReplicas: 3, readyReplicas: 3`
	deadline  = `spec: {replicas: 3, progressDeadlineSeconds: 600}`
)

// TestReadiness_OfEachKind: an object has the reason, or is ready if there is none. The same rules
// hold for typed objects without a kind, unstructured ones, and unstructured ones with floats.
func TestReadiness_OfEachKind(t *testing.T) {
	for _, c := range []struct{ kind, object, reason string }{
		// Each kind.
		{"Gadget", ``, ``},
		{"Gadget", `metadata: {deletionTimestamp: "2020-01-01T00:00:00Z"}`, `is being deleted`},
		{"ConfigMap", `metadata: {deletionTimestamp: "2020-01-01T00:00:00Z"}`, `is being deleted`},
		{"Gadget", `{metadata: {generation: 3}, status: {observedGeneration: 2}}`, `its controller has not seen generation 3`},
		{"Gadget", `{metadata: {generation: 3}, status: {observedGeneration: 3}}`, ``},
		{"Gadget", `metadata: {generation: 3}`, ``},
		{"Gadget", `status: {observedGeneration: 3}`, ``},
		{"Gadget", `status: {conditions: [{type: Reconciling, status: "True", reason: Rolling, message: half}]}`, `condition Reconciling is True: Rolling: half`},
		{"Gadget", `status: {conditions: [{type: Reconciling, status: "False"}, {type: Stalled, status: "False"}]}`, ``},
		{"Gadget", `status: {conditions: [{type: Stalled, status: "True"}, {type: Ready, status: "True"}]}`, `condition Stalled is True`},
		{"Gadget", `status: {conditions: [{type: Reconciling, status: "True"}, {type: Stalled, status: "True"}]}`, `condition Stalled is True`},
		{"Gadget", `status: {conditions: [{type: Ready, status: "True"}]}`, ``},
		{"Gadget", `status: {conditions: [{type: Ready, status: "False", message: no disk}]}`, `condition Ready is False: no disk`},
		{"Gadget", `status: {conditions: [{type: Ready, status: Unknown}]}`, `condition Ready is Unknown`},
		{"Gadget", `status: {conditions: none}`, ``},
		{"Gadget", `status: {conditions: [none, {type: Ready, status: "False"}]}`, `condition Ready is False`},
		{"Gadget", `status: gone`, ``},
		{"Secret", `{}`, ``},
		{"CronJob", `{}`, ``},
		{"PodDisruptionBudget", `status: {conditions: [{type: Ready, status: "False"}]}`, ``},
		{"PodDisruptionBudget", `{metadata: {generation: 2}, status: {observedGeneration: 1}}`, `its controller has not seen generation 2`},
		// The kind of another group.
		{"Deployment of test.dev", `spec: {replicas: 3}`, ``},

		{"Deployment", `{}`, `0 of 1 replicas exist`},
		{"Deployment", `{spec: {replicas: 3}, status: {replicas: 1}}`, `1 of 3 replicas exist`},
		{"Deployment", `{spec: {replicas: 3}, status: {replicas: 3, updatedReplicas: 1}}`, `1 of 3 replicas are updated`},
		{"Deployment", `{spec: {replicas: 3}, status: {replicas: 4, updatedReplicas: 3, availableReplicas: 4, readyReplicas: 4}}`, `4 replicas exist, 3 are wanted`},
		{"Deployment", `{spec: {replicas: 3}, status: {replicas: 3, updatedReplicas: 3, availableReplicas: 2, readyReplicas: 3}}`, `2 of 3 replicas are available`},
		{"Deployment", `{spec: {replicas: 3}, status: {replicas: 3, updatedReplicas: 3, availableReplicas: 3, readyReplicas: 2}}`, `2 of 3 replicas are ready`},
		{"Deployment", `{` + deadline + `, status: {` + three + `, conditions: [` + available + `]}}`, `its new ReplicaSet is not available`},
		{"Deployment", `{` + deadline + `, status: {` + three + `, conditions: [` + available + `, {type: Progressing, status: "True", reason: ReplicaSetUpdated}]}}`, `its new ReplicaSet is not available`},
		{"Deployment", `{` + deadline + `, status: {` + three + `, conditions: [` + available + `, {type: Progressing, status: "False", reason: NewReplicaSetAvailable}]}}`, `its new ReplicaSet is not available`},
		{"Deployment", `{` + deadline + `, status: {` + three + `, conditions: [` + complete + `]}}`, `condition Available is missing`},
		{"Deployment", `{` + deadline + `, status: {` + three + `, conditions: [` + complete + `, {type: Available, status: "False"}]}}`, `condition Available is False`},
		{"Deployment", `{` + deadline + `, status: {` + three + `, conditions: [` + complete + `, ` + available + `]}}`, ``},
		{"Deployment", `{spec: {replicas: 3}, status: {` + three + `, conditions: [` + available + `]}}`, ``},
		{"Deployment", `{spec: {replicas: 3, progressDeadlineSeconds: 2147483647}, status: {` + three + `, conditions: [` + available + `]}}`, ``},
		{"Deployment", `{spec: {replicas: 0}, status: {conditions: [` + available + `]}}`, ``},
		{"Deployment", `{spec: {replicas: 3}, status: {conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]}}`, `condition Progressing is False: ProgressDeadlineExceeded`},

		{"StatefulSet", `{}`, `0 of 1 replicas exist`},
		{"StatefulSet", `{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 1}}`, `1 of 2 replicas are ready`},
		{"StatefulSet", `{spec: {replicas: 2}, status: {replicas: 3, readyReplicas: 3}}`, `3 replicas exist, 2 are wanted`},
		{"StatefulSet", `{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 1}}`, `1 of 2 replicas are current`},
		{"StatefulSet", `{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: b}}`, `its rollout is not complete`},
		{"StatefulSet", `{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 2, currentRevision: b, updateRevision: b}}`, ``},
		{"StatefulSet", `{spec: {replicas: 2, updateStrategy: {rollingUpdate: {partition: 1}}}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: b}}`, `0 of 1 replicas are updated`},
		{"StatefulSet", `{spec: {replicas: 2, updateStrategy: {rollingUpdate: {partition: 1}}}, status: {replicas: 2, readyReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}}`, ``},
		{"StatefulSet", `{spec: {replicas: 2, updateStrategy: {rollingUpdate: {partition: 1}}}, status: {replicas: 1, updatedReplicas: 1}}`, `1 of 2 replicas exist`},
		{"StatefulSet", `{spec: {replicas: 2, updateStrategy: {type: OnDelete}}}`, ``},

		{"DaemonSet", `{}`, `its controller has not seen it`},
		{"DaemonSet", `status: {desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 2}`, `its controller has not seen it`},
		{"DaemonSet", `status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 1}`, `1 of 2 replicas are scheduled`},
		{"DaemonSet", `status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 1}`, `1 of 2 replicas are updated`},
		{"DaemonSet", `status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}`, `1 of 2 replicas are available`},
		{"DaemonSet", `status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 1}`, `1 of 2 replicas are ready`},
		{"DaemonSet", `status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 2}`, ``},
		// No node fits.
		{"DaemonSet", `status: {observedGeneration: 1, desiredNumberScheduled: 0}`, ``},

		{"ReplicaSet", `{}`, `0 of 1 replicas are labeled`},
		{"ReplicaSet", `{spec: {replicas: 2}, status: {fullyLabeledReplicas: 2, availableReplicas: 1}}`, `1 of 2 replicas are available`},
		{"ReplicaSet", `{spec: {replicas: 2}, status: {fullyLabeledReplicas: 2, availableReplicas: 2, readyReplicas: 1}}`, `1 of 2 replicas are ready`},
		{"ReplicaSet", `{spec: {replicas: 2}, status: {replicas: 3, fullyLabeledReplicas: 3, availableReplicas: 3, readyReplicas: 3}}`, `3 replicas exist, 2 are wanted`},
		{"ReplicaSet", `{spec: {replicas: 2}, status: {replicas: 2, fullyLabeledReplicas: 2, availableReplicas: 2, readyReplicas: 2}}`, ``},
		{"ReplicaSet", `{spec: {replicas: 0}, status: {conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate}]}}`, `condition ReplicaFailure is True: FailedCreate`},

		{"Pod", `{}`, `is not running`},
		{"Pod", `status: {phase: Pending}`, `is not running`},
		{"Pod", `status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}`, `condition PodScheduled is False: Unschedulable`},
		{"Pod", `status: {phase: Running}`, `condition Ready is missing`},
		{"Pod", `status: {phase: Running, conditions: [{type: Ready, status: "False", reason: ContainersNotReady}]}`, `condition Ready is False: ContainersNotReady`},
		{"Pod", `status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`, ``},
		{"Pod", `status: {phase: Succeeded, conditions: [{type: Ready, status: "False"}]}`, ``},
		{"Pod", `status: {phase: Failed}`, `has failed`},

		{"Job", `{}`, `has not started`},
		{"Job", `status: {startTime: "2020-01-01T00:00:00Z"}`, ``},
		{"Job", `status: {conditions: [{type: Complete, status: "True"}]}`, ``},
		{"Job", `status: {conditions: [{type: Suspended, status: "True"}]}`, ``},
		{"Job", `status: {conditions: [{type: Suspended, status: "False"}]}`, `has not started`},
		{"Job", `status: {startTime: "2020-01-01T00:00:00Z", conditions: [{type: Failed, status: "True", reason: BackoffLimitExceeded}]}`, `condition Failed is True: BackoffLimitExceeded`},

		{"PersistentVolumeClaim", `{}`, `is not bound`},
		{"PersistentVolumeClaim", `status: {phase: Pending}`, `is not bound`},
		{"PersistentVolumeClaim", `status: {phase: Bound}`, ``},

		{"Service", `{}`, ``},
		{"Service", `spec: {type: LoadBalancer}`, `has no address`},
		{"Service", `spec: {type: LoadBalancer, clusterIP: 10.0.0.1}`, ``},
		{"Service", `{spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`, ``},

		{"CustomResourceDefinition", `{}`, `condition Established is missing`},
		{"CustomResourceDefinition", `status: {conditions: [{type: Established, status: "False", reason: Installing}]}`, `condition Established is False: Installing`},
		{"CustomResourceDefinition", `status: {conditions: [{type: NamesAccepted, status: "False", reason: Conflict}, {type: Established, status: "True"}]}`, `condition NamesAccepted is False: Conflict`},
		{"CustomResourceDefinition", `status: {conditions: [{type: NamesAccepted, status: "True"}, {type: Established, status: "True"}]}`, ``},
	} {
		for form, obj := range forms(t, c.kind, c.object) {
			if ready, reason := readiness(schema.FromAPIVersionAndKind(kinds[c.kind].apiVersion, strings.TrimSuffix(c.kind, " of test.dev")).GroupKind(), obj); ready != (c.reason == "") || reason != c.reason {
				t.Errorf("%s %s, %s: ready is %t, reason %q, want %q", form, c.kind, c.object, ready, reason, c.reason)
			}
		}
	}
}

// forms returns an object in each form.
func forms(t *testing.T, kind, text string) map[string]client.Object {
	t.Helper()
	floats := &unstructured.Unstructured{}
	testkit.NoError(t, yaml.Unmarshal([]byte(text), &floats.Object), text)
	if floats.Object == nil {
		floats.Object = map[string]any{}
	}
	k := kinds[kind]
	kind, _, _ = strings.Cut(kind, " ")
	floats.SetKind(kind)
	floats.SetAPIVersion(k.apiVersion)
	ints := &unstructured.Unstructured{}
	data, err := json.Marshal(floats.Object)
	if err == nil {
		err = ints.UnmarshalJSON(data)
	}
	testkit.NoError(t, err, text)
	all := map[string]client.Object{"unstructured": ints, "unstructured with floats": floats}
	if k.typed != nil {
		typed := k.typed()
		testkit.NoError(t, json.Unmarshal(data, typed), text)
		all["typed with a kind"] = typed
		all["typed"] = typed.DeepCopyObject().(client.Object)
		all["typed"].GetObjectKind().SetGroupVersionKind(ints.GroupVersionKind().GroupVersion().WithKind(""))
	}
	return all
}

// TestReadiness_OfATypeThatCannotBeRead: an object that does not encode is not ready.
func TestReadiness_OfATypeThatCannotBeRead(t *testing.T) {
	ready, reason := readiness(schema.GroupKind{Kind: "ConfigMap"}, &unreadable{Unreadable: make(chan int)})
	if ready || !strings.HasPrefix(reason, "reading its fields: ") {
		t.Errorf("ready is %t: %s", ready, reason)
	}
}

type unreadable struct {
	corev1.ConfigMap `json:",inline"`

	Unreadable chan int `json:"unreadable"`
}

func (u *unreadable) DeepCopyObject() runtime.Object { return u }
