// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// state is one of an object's states. Later ones have greater resource versions.
type state int

const (
	created      state = iota // generation 1
	changed                   // a new spec: generation 2
	statusOnly                // then a new status: still generation 2
	changedAgain              // generation 3
)

// generations are the values of metadata.generation by state.
var generations = [...]int64{created: 1, changed: 2, statusOnly: 2, changedAgain: 3}

func (s state) resourceVersion(i int) string {
	return strconv.Itoa((int(s)+1)*10_000_000 + i)
}

// indexOf returns the number of an object and its state.
func indexOf(o metav1.Object) (int, state) {
	n, _ := strconv.Atoi(o.GetResourceVersion())
	return n % 10_000_000, state(n/10_000_000 - 1)
}

// same returns an error if o is not what the server sent. It ignores managedFields and the kind,
// which client-go clears in built-in types.
func (r *packedRun) same(o runtime.Object) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	got, err := plainOf(o)
	if err != nil {
		return err
	}
	want, err := plainOf(r.kind.object(indexOf(m)))
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s/%s is %v, but the server sent %v", m.GetNamespace(), m.GetName(), got, want)
	}
	return nil
}

func plainOf(o runtime.Object) (map[string]any, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	delete(plain, "kind")
	delete(plain, "apiVersion")
	unstructured.RemoveNestedField(plain, "metadata", "managedFields")
	return plain, nil
}

// nodes is the number of nodes of the Pods, which an index counts.
const nodes = 100

func nodeOf(i int) string { return fmt.Sprintf("node-%03d.example.internal", i%nodes) }

// packedMeta returns the metadata that all kinds have. Each value that is unique in a cluster is
// unique here.
func packedMeta(i int, s state, managed ...metav1.ManagedFieldsEntry) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespaceOf(i), Name: fmt.Sprintf("web-7d9c5b8f6-%05d", i), ResourceVersion: s.resourceVersion(i),
		UID: types.UID(fmt.Sprintf("6f1c2d3e-0000-4000-8000-%012d", i)), CreationTimestamp: metav1.Unix(int64(1_700_000_000+i), 0),
		Generation: generations[s], ManagedFields: managed,
	}
}

func managedBy(manager, subresource, version, fields string, i int) metav1.ManagedFieldsEntry {
	at := metav1.Unix(int64(1_700_000_000+i), 0)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version, Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields), Subresource: subresource,
	}
}

// configMapOf returns a small ConfigMap: a label and two short values.
func configMapOf(i int, s state) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: packedMeta(i, s,
		managedBy("kubectl-client-side-apply", "", "v1", `{"f:data":{".":{},"f:level":{},"f:url":{}},"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{}}}}`, i))}
	m.Generation = 0
	m.Labels = map[string]string{"app.kubernetes.io/name": "web"}
	m.Data = map[string]string{"level": "info", "url": fmt.Sprintf("https://web-%05d.example.com", i)}
	return m
}

const podSpecFields = `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},` +
	`"f:ownerReferences":{".":{},"k:{\"uid\":\"5e0b1c2d-0000-4000-8000-000000000000\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},` +
	`"f:args":{},"f:env":{".":{},"k:{\"name\":\"DATABASE_URL\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:secretKeyRef":{}}},` +
	`"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_NAME\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}}},` +
	`"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},` +
	`"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":` +
	`{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},` +
	`"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},` +
	`"f:schedulerName":{},"f:securityContext":{},"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{}}}`

const podStatusFields = `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},` +
	`"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":` +
	`{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},` +
	`"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.0.0.1\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`

// podOf returns a running Pod of a Deployment with one container.
func podOf(i int, s state) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: packedMeta(i, s,
		managedBy("kube-controller-manager", "", "v1", podSpecFields, i), managedBy("kubelet", "status", "v1", podStatusFields, i))}
	p.GenerateName = "web-7d9c5b8f6-"
	p.Labels = map[string]string{"app.kubernetes.io/name": "web", "pod-template-hash": "7d9c5b8f6"}
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d9c5b8f6", UID: "5e0b1c2d-0000-4000-8000-000000000000",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	p.Spec = podSpec(i)
	if s >= changed {
		p.Spec.Containers[0].Image = "registry.example.com/shop/web:v1.42.1"
	}
	p.Status = podStatus(i, p.CreationTimestamp)
	if s >= statusOnly {
		p.Status.ContainerStatuses[0].RestartCount++
	}
	return p
}

func podSpec(i int) corev1.PodSpec {
	const account = "web"
	return corev1.PodSpec{
		Containers: []corev1.Container{container()}, NodeName: nodeOf(i), ServiceAccountName: account, DeprecatedServiceAccount: account,
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: corev1.DefaultSchedulerName,
		TerminationGracePeriodSeconds: new(int64(30)), SecurityContext: &corev1.PodSecurityContext{}, EnableServiceLinks: new(true),
		Priority: new(int32(0)), PreemptionPolicy: new(corev1.PreemptLowerPriority),
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		},
		Volumes: []corev1.Volume{{Name: fmt.Sprintf("kube-api-access-%05d", i), VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: new(int32(0o644)),
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
					Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
				}}}},
			},
		}}}},
	}
}

func container() corev1.Container {
	return corev1.Container{
		Name: "web", Image: "registry.example.com/shop/web:v1.42.0", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"serve", "--port=8080"},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			{Name: "LOG_LEVEL", Value: "info"},
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			{Name: "DATABASE_URL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "web-database"}, Key: "url",
			}}},
		},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		LivenessProbe: &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-00000", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}
}

func podStatus(i int, at metav1.Time) corev1.PodStatus {
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	condition := func(t corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: at}
	}
	return corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "192.168.0.17", HostIPs: []corev1.HostIP{{IP: "192.168.0.17"}}, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		StartTime: &at, QOSClass: corev1.PodQOSBurstable,
		Conditions: []corev1.PodCondition{
			condition("PodReadyToStartContainers"), condition(corev1.PodInitialized), condition(corev1.PodReady), condition(corev1.ContainersReady),
			condition(corev1.PodScheduled),
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Ready: true, Started: new(true), Image: "registry.example.com/shop/web:v1.42.0",
			ImageID:     "registry.example.com/shop/web@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
			ContainerID: fmt.Sprintf("containerd://%064x", i), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		}},
	}
}
