// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SetDefaults sets the fields of a built-in object that an API server sets if the client has not.
// It runs whenever the server reads an object.
func SetDefaults(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		defaultPod(o)
	case *corev1.PodTemplate:
		defaultPodSpec(&o.Template.Spec)
	case *corev1.ReplicationController:
		defaultReplicationController(o)
	case *corev1.Service:
		defaultService(o)
	case *corev1.Secret:
		defaultSecret(o)
	case *corev1.Namespace:
		defaultNamespace(o)
	case *corev1.PersistentVolume:
		initial(&o.Status.Phase, corev1.VolumePending)
		initial(&o.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		pointed(&o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		if o.Spec.HostPath != nil {
			pointed(&o.Spec.HostPath.Type, corev1.HostPathUnset)
		}
	case *corev1.PersistentVolumeClaim:
		initial(&o.Status.Phase, corev1.ClaimPending)
		pointed(&o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	case *corev1.Endpoints: //nolint:staticcheck // still served
		for i := range o.Subsets {
			for j := range o.Subsets[i].Ports {
				initial(&o.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
			}
		}
	case *corev1.LimitRange:
		defaultLimits(o.Spec.Limits)
	case *corev1.Node:
		if o.Status.Allocatable == nil {
			o.Status.Allocatable = o.Status.Capacity
		}
	default:
		setGroupDefaults(obj)
		defaultHooks(obj)
	}
}

func setGroupDefaults(obj runtime.Object) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		defaultDeployment(o)
	case *appsv1.ReplicaSet:
		pointed(&o.Spec.Replicas, 1)
		defaultPodSpec(&o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		defaultStatefulSet(o)
	case *appsv1.DaemonSet:
		defaultDaemonSet(o)
	case *batchv1.Job:
		if o.Labels == nil && o.Spec.Template.Labels != nil {
			o.Labels = o.Spec.Template.Labels
		}
		defaultJob(&o.Spec)
		pointed(&o.Spec.ManualSelector, false)
		pointed(&o.Spec.Suspend, false)
	case *batchv1.CronJob:
		defaultCronJob(&o.Spec)
	case *autoscalingv2.HorizontalPodAutoscaler:
		defaultAutoscaler(&o.Spec)
	case *autoscalingv1.HorizontalPodAutoscaler:
		pointed(&o.Spec.MinReplicas, 1)
	case *rbacv1.RoleBinding:
		initial(&o.RoleRef.APIGroup, rbacv1.GroupName)
		defaultSubjects(o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		initial(&o.RoleRef.APIGroup, rbacv1.GroupName)
		defaultSubjects(o.Subjects)
	case *networkingv1.NetworkPolicy:
		defaultNetworkPolicy(&o.Spec)
	case *networkingv1.IngressClass:
		if p := o.Spec.Parameters; p != nil {
			pointed(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
		}
	case *storagev1.StorageClass:
		pointed(&o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		pointed(&o.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	case *schedulingv1.PriorityClass:
		pointed(&o.PreemptionPolicy, corev1.PreemptLowerPriority)
	case *discoveryv1.EndpointSlice:
		for i := range o.Ports {
			pointed(&o.Ports[i].Name, "")
			pointed(&o.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

func initial[T comparable](field *T, value T) {
	var empty T
	if *field == empty {
		*field = value
	}
}

func pointed[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultDeployment(o *appsv1.Deployment) {
	pointed(&o.Spec.Replicas, 1)
	pointed(&o.Spec.RevisionHistoryLimit, 10)
	pointed(&o.Spec.ProgressDeadlineSeconds, 600)
	initial(&o.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if o.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		pointed(&o.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		pointed(&o.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		pointed(&o.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaultPodSpec(&o.Spec.Template.Spec)
}

func defaultStatefulSet(o *appsv1.StatefulSet) {
	pointed(&o.Spec.Replicas, 1)
	pointed(&o.Spec.RevisionHistoryLimit, 10)
	initial(&o.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	update := &o.Spec.UpdateStrategy
	if update.Type == "" {
		update.Type = appsv1.RollingUpdateStatefulSetStrategyType
		pointed(&update.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if update.Type == appsv1.RollingUpdateStatefulSetStrategyType && update.RollingUpdate != nil {
		pointed(&update.RollingUpdate.Partition, 0)
		pointed(&update.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
	}
	pointed(&o.Spec.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	initial(&o.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	initial(&o.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range o.Spec.VolumeClaimTemplates {
		claim := &o.Spec.VolumeClaimTemplates[i]
		claim.APIVersion, claim.Kind = "v1", "PersistentVolumeClaim"
		SetDefaults(claim)
	}
	defaultPodSpec(&o.Spec.Template.Spec)
}

func defaultDaemonSet(o *appsv1.DaemonSet) {
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	if o.Annotations[appsv1.DeprecatedTemplateGeneration] == "" {
		o.Annotations[appsv1.DeprecatedTemplateGeneration] = "0"
	}
	pointed(&o.Spec.RevisionHistoryLimit, 10)
	update := &o.Spec.UpdateStrategy
	initial(&update.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if update.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		pointed(&update.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		pointed(&update.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		pointed(&update.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaultPodSpec(&o.Spec.Template.Spec)
}

// defaultReplicationController takes the selector and the labels from the template.
func defaultReplicationController(o *corev1.ReplicationController) {
	pointed(&o.Spec.Replicas, 1)
	if o.Spec.Template == nil {
		return
	}
	if labels := o.Spec.Template.Labels; labels != nil {
		if len(o.Spec.Selector) == 0 {
			o.Spec.Selector = labels
		}
		if len(o.Labels) == 0 {
			o.Labels = labels
		}
	}
	defaultPodSpec(&o.Spec.Template.Spec)
}

// defaultJob sets the defaults that a Job has in a CronJob too.
func defaultJob(s *batchv1.JobSpec) {
	if s.Parallelism == nil {
		pointed(&s.Parallelism, 1)
		pointed(&s.Completions, 1)
	}
	limit := int32(6)
	if s.BackoffLimitPerIndex != nil {
		limit = math.MaxInt32
	}
	pointed(&s.BackoffLimit, limit)
	pointed(&s.CompletionMode, batchv1.NonIndexedCompletion)
	replacement := batchv1.TerminatingOrFailed
	if s.PodFailurePolicy != nil {
		replacement = batchv1.Failed
	}
	pointed(&s.PodReplacementPolicy, replacement)
	defaultFailurePolicy(s.PodFailurePolicy)
	defaultPodSpec(&s.Template.Spec)
}

func defaultFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		for j := range p.Rules[i].OnPodConditions {
			initial(&p.Rules[i].OnPodConditions[j].Status, corev1.ConditionTrue)
		}
	}
}

func defaultCronJob(s *batchv1.CronJobSpec) {
	initial(&s.ConcurrencyPolicy, batchv1.AllowConcurrent)
	pointed(&s.Suspend, false)
	pointed(&s.SuccessfulJobsHistoryLimit, 3)
	pointed(&s.FailedJobsHistoryLimit, 1)
	defaultFailurePolicy(s.JobTemplate.Spec.PodFailurePolicy)
	defaultPodSpec(&s.JobTemplate.Spec.Template.Spec)
}

// defaultAutoscaler scales at 80 % of CPU if there are no metrics.
func defaultAutoscaler(s *autoscalingv2.HorizontalPodAutoscalerSpec) {
	pointed(&s.MinReplicas, 1)
	if len(s.Metrics) == 0 {
		percent := int32(80)
		s.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
			},
		}}
	}
	if s.Behavior == nil {
		return
	}
	const seconds = 15
	byPercent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: seconds}
	byPods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: seconds}
	pointed(&s.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
	pointed(&s.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	defaultScaling(s.Behavior.ScaleUp, byPods, byPercent)
	pointed(&s.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
	defaultScaling(s.Behavior.ScaleDown, byPercent)
}

func defaultScaling(rules *autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	pointed(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if rules.Policies == nil {
		rules.Policies = policies
	}
}

func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		if s := &subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			initial(&s.APIGroup, rbacv1.GroupName)
		}
	}
}

func defaultNetworkPolicy(s *networkingv1.NetworkPolicySpec) {
	if len(s.PolicyTypes) == 0 {
		s.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(s.Egress) > 0 {
			s.PolicyTypes = append(s.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, rule := range s.Ingress {
		for i := range rule.Ports {
			pointed(&rule.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
	for _, rule := range s.Egress {
		for i := range rule.Ports {
			pointed(&rule.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

// defaultLimits derives the defaults of containers from the limits.
func defaultLimits(limits []corev1.LimitRangeItem) {
	for i := range limits {
		l := &limits[i]
		if l.Type != corev1.LimitTypeContainer {
			continue
		}
		inherit(&l.Default, l.Max)
		inherit(&l.DefaultRequest, l.Default)
		inherit(&l.DefaultRequest, l.Min)
	}
}

// inherit adds the quantities of from that the list does not have.
func inherit(list *corev1.ResourceList, from corev1.ResourceList) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	for name, q := range from {
		if _, ok := (*list)[name]; !ok {
			(*list)[name] = q.DeepCopy()
		}
	}
}
