// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Values of antiAffinityPreset.
const (
	AntiAffinitySoft = "soft"
	AntiAffinityHard = "hard"
)

// Conditions of a Memcached.
const (
	// ConditionAvailable is True while at least one server is ready.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while servers are replaced, added or removed.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True if an object could not be applied, a Secret is missing, or servers
	// are not ready.
	ConditionDegraded = "Degraded"
	// ConditionReady is True while all wanted servers are ready.
	ConditionReady = "Ready"
)

// MemcachedSpec is what the user asks for.
type MemcachedSpec struct {
	// replicas is the number of servers. Default: 1. With autoscaling it has no effect.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// image is the image of the servers.
	// +kubebuilder:default="memcached:1.6"
	// +optional
	Image string `json:"image,omitempty"`

	// resources are the requests and limits of a server.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// memcached has the flags of the servers.
	// +optional
	Memcached ServerSpec `json:"memcached,omitzero"`

	// highAvailability spreads the servers and protects them.
	// +optional
	HighAvailability HighAvailabilitySpec `json:"highAvailability,omitzero"`

	// monitoring exports metrics.
	// +optional
	Monitoring MonitoringSpec `json:"monitoring,omitzero"`

	// security has security contexts, credentials and the network policy.
	// +optional
	Security SecuritySpec `json:"security,omitzero"`

	// autoscaling lets a HorizontalPodAutoscaler decide about the number of servers.
	// +optional
	Autoscaling AutoscalingSpec `json:"autoscaling,omitzero"`

	// service changes the headless Service.
	// +optional
	Service ServiceSpec `json:"service,omitzero"`
}

// ServerSpec has the flags of a server.
type ServerSpec struct {
	// maxMemoryMB is the memory for items, in megabytes (-m).
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=65536
	// +kubebuilder:default=64
	// +optional
	MaxMemoryMB int32 `json:"maxMemoryMB,omitempty"`

	// maxConnections is the limit of connections at a time (-c).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +kubebuilder:default=1024
	// +optional
	MaxConnections int32 `json:"maxConnections,omitempty"`

	// threads is the number of worker threads (-t).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	// +kubebuilder:default=4
	// +optional
	Threads int32 `json:"threads,omitempty"`

	// maxItemSize is the size limit of an item, such as 512k or 2m (-I).
	// +kubebuilder:validation:Pattern=`^[0-9]+(k|m)$`
	// +kubebuilder:default="1m"
	// +optional
	MaxItemSize string `json:"maxItemSize,omitempty"`

	// verbosity is the number of v in -v and -vv.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	// +kubebuilder:default=0
	// +optional
	Verbosity int32 `json:"verbosity,omitempty"`

	// extraArgs follow the other arguments.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// HighAvailabilitySpec spreads the servers and protects them.
type HighAvailabilitySpec struct {
	// antiAffinityPreset is soft, to prefer a node for each server, or hard, to require it.
	// +kubebuilder:validation:Enum=soft;hard
	// +kubebuilder:default="soft"
	// +optional
	AntiAffinityPreset string `json:"antiAffinityPreset,omitempty"`

	// topologySpreadConstraints of the Pods.
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// podDisruptionBudget limits how many servers an eviction may stop.
	// +optional
	PodDisruptionBudget PDBSpec `json:"podDisruptionBudget,omitzero"`

	// gracefulShutdown lets connections drain.
	// +optional
	GracefulShutdown GracefulShutdownSpec `json:"gracefulShutdown,omitzero"`
}

// PDBSpec limits evictions. Default: one server stays available. With both limits, minAvailable
// counts.
type PDBSpec struct {
	// enabled creates a PodDisruptionBudget.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// minAvailable is a number or a percentage of servers.
	// +optional
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`

	// maxUnavailable is a number or a percentage of servers.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// GracefulShutdownSpec lets connections drain before a server ends.
type GracefulShutdownSpec struct {
	// enabled adds a preStop hook.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// preStopDelaySeconds is how long the hook sleeps.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	// +kubebuilder:default=10
	// +optional
	PreStopDelaySeconds int32 `json:"preStopDelaySeconds,omitempty"`

	// terminationGracePeriodSeconds of the Pods. It should exceed the delay.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	// +kubebuilder:default=30
	// +optional
	TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// MonitoringSpec exports metrics.
type MonitoringSpec struct {
	// enabled adds an exporter to each server.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// exporterImage is the image of the exporter.
	// +kubebuilder:default="prom/memcached-exporter:v0.15.4"
	// +optional
	ExporterImage string `json:"exporterImage,omitempty"`

	// exporterResources are the requests and limits of the exporter.
	// +optional
	ExporterResources corev1.ResourceRequirements `json:"exporterResources,omitzero"`

	// serviceMonitor creates a ServiceMonitor, where the Prometheus operator is installed.
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}

// ServiceMonitorSpec changes the ServiceMonitor.
type ServiceMonitorSpec struct {
	// additionalLabels are labels of the ServiceMonitor. The operator's own labels win.
	// +optional
	AdditionalLabels map[string]string `json:"additionalLabels,omitempty"`

	// interval is the time between two scrapes.
	// +kubebuilder:default="30s"
	// +optional
	Interval string `json:"interval,omitempty"`

	// scrapeTimeout is the time limit of a scrape.
	// +kubebuilder:default="10s"
	// +optional
	ScrapeTimeout string `json:"scrapeTimeout,omitempty"`
}

// SecuritySpec has security contexts, credentials and the network policy.
type SecuritySpec struct {
	// podSecurityContext of the Pods.
	// +optional
	PodSecurityContext *corev1.PodSecurityContext `json:"podSecurityContext,omitempty"`

	// containerSecurityContext of all containers.
	// +optional
	ContainerSecurityContext *corev1.SecurityContext `json:"containerSecurityContext,omitempty"`

	// sasl requires a password.
	// +optional
	SASL SASLSpec `json:"sasl,omitzero"`

	// tls encrypts connections.
	// +optional
	TLS TLSSpec `json:"tls,omitzero"`

	// networkPolicy restricts who may connect.
	// +optional
	NetworkPolicy NetworkPolicySpec `json:"networkPolicy,omitzero"`
}

// SASLSpec requires a password.
type SASLSpec struct {
	// enabled turns SASL on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// credentialsSecretRef names a Secret with the key password-file.
	// +optional
	CredentialsSecretRef corev1.LocalObjectReference `json:"credentialsSecretRef,omitzero"`
}

// TLSSpec encrypts connections.
type TLSSpec struct {
	// enabled turns TLS on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// certificateSecretRef names a Secret with the keys tls.crt and tls.key.
	// +optional
	CertificateSecretRef corev1.LocalObjectReference `json:"certificateSecretRef,omitzero"`

	// enableClientCert requires a client certificate that the key ca.crt of the Secret verifies.
	// +optional
	EnableClientCert bool `json:"enableClientCert,omitempty"`
}

// NetworkPolicySpec restricts who may connect.
type NetworkPolicySpec struct {
	// enabled creates a NetworkPolicy.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// allowedSources may connect. Default: all.
	// +optional
	AllowedSources []networkingv1.NetworkPolicyPeer `json:"allowedSources,omitempty"`
}

// AutoscalingSpec lets a HorizontalPodAutoscaler decide about the number of servers.
type AutoscalingSpec struct {
	// enabled creates a HorizontalPodAutoscaler.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// minReplicas is the lower limit. Default: 1.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the upper limit.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxReplicas int32 `json:"maxReplicas,omitempty"`

	// metrics decide about the number. Default: 80 % of the requested processor time.
	// +optional
	Metrics []autoscalingv2.MetricSpec `json:"metrics,omitempty"`

	// behavior limits changes. Default: a scale-down waits for 300 s.
	// +optional
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}

// ServiceSpec changes the headless Service.
type ServiceSpec struct {
	// annotations of the Service.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MemcachedStatus is what the controller last saw. Only the controller writes it.
type MemcachedStatus struct {
	// conditions are Available, Progressing, Degraded and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// readyReplicas is the number of servers that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// observedGeneration is the generation of the spec that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// serverList has the address of the Service while the Memcached is Ready.
	// +listType=atomic
	// +optional
	ServerList []string `json:"serverList,omitempty"`
}

// Memcached is a group of memcached servers behind a headless Service.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type Memcached struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec MemcachedSpec `json:"spec,omitzero"`
	// +optional
	Status MemcachedStatus `json:"status,omitzero"`
}

// MemcachedList is a list of Memcacheds.
// +kubebuilder:object:root=true
type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Memcached `json:"items"`
}
