// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// benchApps is the group and version of App.
var benchApps = schema.GroupVersion{Group: "bench.setpoint.dev", Version: "v1"}

// newPackedScheme returns a scheme of the built-in kinds and App.
func newPackedScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		panic(err)
	}
	s.AddKnownTypes(benchApps, &App{}, &AppList{})
	metav1.AddToGroupVersion(s, benchApps)
	return s
}

// App is a custom resource as operators have them: a program and how it is served.
type App struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   AppSpec   `json:"spec"`
	Status AppStatus `json:"status,omitempty"`
}

// AppSpec is the desired state.
type AppSpec struct {
	Replicas  *int32                      `json:"replicas,omitempty"`
	Image     string                      `json:"image"`
	Args      []string                    `json:"args,omitempty"`
	Env       []corev1.EnvVar             `json:"env,omitempty"`
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
	Routes    []AppRoute                  `json:"routes,omitempty"`
	Config    map[string]string           `json:"config,omitempty"`
}

// AppRoute is an address of the program.
type AppRoute struct {
	Host   string `json:"host"`
	Path   string `json:"path"`
	Port   int32  `json:"port"`
	Secret string `json:"secret,omitempty"`
}

// AppStatus is the observed state.
type AppStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Replicas           int32              `json:"replicas"`
	ReadyReplicas      int32              `json:"readyReplicas"`
	Selector           string             `json:"selector,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyInto copies as generated code does.
func (a *App) DeepCopyInto(out *App) {
	*out = *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if a.Spec.Replicas != nil {
		out.Spec.Replicas = new(*a.Spec.Replicas)
	}
	out.Spec.Args, out.Spec.Routes = slices.Clone(a.Spec.Args), slices.Clone(a.Spec.Routes)
	out.Spec.Config = maps.Clone(a.Spec.Config)
	out.Spec.Env = make([]corev1.EnvVar, len(a.Spec.Env))
	for i := range a.Spec.Env {
		a.Spec.Env[i].DeepCopyInto(&out.Spec.Env[i])
	}
	a.Spec.Resources.DeepCopyInto(&out.Spec.Resources)
	out.Status.Conditions = make([]metav1.Condition, len(a.Status.Conditions))
	for i := range a.Status.Conditions {
		a.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
	}
}

// DeepCopyObject implements runtime.Object.
func (a *App) DeepCopyObject() runtime.Object {
	out := &App{}
	a.DeepCopyInto(out)
	return out
}

// AppList is a list of Apps.
type AppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []App `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *AppList) DeepCopyObject() runtime.Object {
	out := &AppList{TypeMeta: l.TypeMeta, Items: make([]App, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}

const appSpecFields = `{"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/restartedAt":{}},"f:labels":{".":{},"f:app.kubernetes.io/name":{},` +
	`"f:app.kubernetes.io/part-of":{}}},"f:spec":{".":{},"f:args":{},"f:config":{".":{},"f:currency":{},"f:features":{},"f:mail":{},"f:theme":{}},"f:env":{},"f:image":{},` +
	`"f:replicas":{},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:routes":{}}}`

const appStatusFields = `{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"Available\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},` +
	`"f:observedGeneration":{},"f:reason":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}},` +
	`"f:observedGeneration":{},"f:readyReplicas":{},"f:replicas":{},"f:selector":{}}}`

// appOf returns an App of 2 KB of JSON, without its managedFields.
func appOf(i int, s state) *App {
	a := &App{TypeMeta: metav1.TypeMeta{APIVersion: benchApps.String(), Kind: "App"}, ObjectMeta: packedMeta(i, s,
		managedBy("kubectl-client-side-apply", "", benchApps.String(), appSpecFields, i), managedBy("app-operator", "status", benchApps.String(), appStatusFields, i))}
	a.Labels = map[string]string{"app.kubernetes.io/name": a.Name, "app.kubernetes.io/part-of": "shop"}
	a.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "2024-03-01T09:30:00Z"}
	a.Finalizers = []string{"apps.bench.setpoint.dev/cleanup"}
	a.Spec = AppSpec{
		Replicas: new(int32(3)), Image: "registry.example.com/shop/web:v1.42.0", Args: []string{"serve", "--port=8080", "--metrics-port=9090"},
		Env: []corev1.EnvVar{
			{Name: "LOG_LEVEL", Value: "info"},
			{Name: "CACHE_URL", Value: fmt.Sprintf("redis://cache-%05d.shop.svc:6379", i)},
			{Name: "SEARCH_URL", Value: fmt.Sprintf("https://search-%05d.shop.svc:9200", i)},
			{Name: "DATABASE_URL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("database-%05d", i)}, Key: "url",
			}}},
		},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		Routes: []AppRoute{
			{Host: fmt.Sprintf("web-%05d.example.com", i), Path: "/", Port: 8080, Secret: fmt.Sprintf("web-%05d-tls", i)},
			{Host: fmt.Sprintf("web-%05d.example.com", i), Path: "/api", Port: 8081, Secret: fmt.Sprintf("web-%05d-tls", i)},
			{Host: fmt.Sprintf("admin-%05d.example.com", i), Path: "/", Port: 8082, Secret: fmt.Sprintf("admin-%05d-tls", i)},
		},
		Config: map[string]string{
			"currency": "EUR", "features": "search,reviews,wishlist", "mail": fmt.Sprintf("smtps://mail-%05d.shop.svc:465", i), "theme": "dark",
		},
	}
	if s >= changed {
		a.Spec.Image = "registry.example.com/shop/web:v1.42.1"
	}
	a.Status = appStatus(a, s)
	return a
}

func appStatus(a *App, s state) AppStatus {
	condition := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: a.Generation, Reason: reason, Message: message, LastTransitionTime: a.CreationTimestamp,
		}
	}
	status := AppStatus{
		ObservedGeneration: a.Generation, Replicas: 3, ReadyReplicas: 3, Selector: "app.kubernetes.io/name=" + a.Name,
		Conditions: []metav1.Condition{
			condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition("Ready", "Reconciled", "3 of 3 replicas are ready, and 3 routes have certificates."),
		},
	}
	if s >= statusOnly {
		status.ReadyReplicas = 2
	}
	return status
}
