// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/setpoint-dev/setpoint/metrics"
	"github.com/setpoint-dev/setpoint/webhook"
)

const validations = 500 // requests of a measurement

// webhooks prints the cost of a typed validator on an object of 10 KB, from the HTTP request to the
// answer. Both libraries count with their metrics.
func webhooks(w *report, rounds int) {
	body, size, err := reviewOfDeployment()
	if err == nil {
		err = compareWebhooks(w, rounds, body, size)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compareWebhooks(w *report, rounds int, body []byte, size int) error {
	ours, err := ourValidator()
	if err != nil {
		return err
	}
	theirs, err := admission.StandaloneWebhook(admission.WithValidator[*appsv1.Deployment](scheme.Scheme, deploymentValidator{}), admission.StandaloneOptions{MetricsPath: "/validate"})
	if err != nil {
		return err
	}
	contestants := []struct {
		handler http.Handler
		path    string
	}{{ours, "/validate.deployments.apps"}, {theirs, "/validate"}}
	var times, allocs, heaps []float64
	var last [2]validation
	for round := range rounds {
		for i := range contestants {
			c := contestants[(i+round)%2]
			if last[(i+round)%2], err = validate(c.handler, c.path, body); err != nil {
				return err
			}
		}
		times = append(times, last[0].ns/last[1].ns)
		allocs = append(allocs, last[0].allocs/last[1].allocs)
		heaps = append(heaps, last[0].bytes/last[1].bytes)
	}
	fmt.Fprintf(w, "validator, object of %d bytes\tsetpoint\tcontroller-runtime\tratio\tmost\t\t\n", size)
	line := func(name string, a, b, ratio, most float64) {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t%.1f\t%s\t\n", name, a, b, ratio, most, verdict(ratio <= most))
	}
	line("ns", last[0].ns, last[1].ns, median(times), 1)
	line("allocations", last[0].allocs, last[1].allocs, median(allocs), 0.8)
	line("allocated bytes", last[0].bytes, last[1].bytes, median(heaps), 0.8)
	return nil
}

// validation is the cost of a request.
type validation struct{ ns, allocs, bytes float64 }

func validate(h http.Handler, path string, body []byte) (v validation, err error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := clock()
	for range validations {
		r := httptest.NewRequest(http.MethodPost, path+"?timeout=10s", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"allowed":true`) {
			return v, fmt.Errorf("%s has answered %d: %s", path, answer.Code, answer.Body)
		}
	}
	v.ns = float64(clock()-begun) / validations
	runtime.ReadMemStats(&after)
	v.allocs = float64(after.Mallocs-before.Mallocs) / validations
	v.bytes = float64(after.TotalAlloc-before.TotalAlloc) / validations
	return v, nil
}

func ourValidator() (http.Handler, error) {
	m, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	hooks := webhook.New(webhook.Options{Name: "bench", Scheme: scheme.Scheme, Service: types.NamespacedName{Namespace: "bench", Name: "bench"}})
	webhook.AddValidator(hooks, webhook.Validator[*appsv1.Deployment]{
		Create: func(_ context.Context, d *appsv1.Deployment) error { return validDeployment(d) },
	}, webhook.Registration{})
	return hooks.Handler(m.Hook()), hooks.Validate()
}

type deploymentValidator struct{}

func (deploymentValidator) ValidateCreate(_ context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	return nil, validDeployment(d)
}

func (deploymentValidator) ValidateUpdate(context.Context, *appsv1.Deployment, *appsv1.Deployment) (admission.Warnings, error) {
	return nil, nil
}

func (deploymentValidator) ValidateDelete(context.Context, *appsv1.Deployment) (admission.Warnings, error) {
	return nil, nil
}

func validDeployment(d *appsv1.Deployment) error {
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return fmt.Errorf("there is no container")
	}
	return nil
}

// reviewOfDeployment returns a review of a new Deployment, and the size of the Deployment in bytes.
func reviewOfDeployment() (body []byte, size int, err error) {
	d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
	d.Name, d.Namespace, d.UID = "shop", "default", "0e5a8f0e"
	labels := map[string]string{"app": "shop", "tier": "web"}
	d.Labels, d.Spec.Selector, d.Spec.Template.Labels = labels, &metav1.LabelSelector{MatchLabels: labels}, labels
	fields := ""
	for i := range 13 {
		c := corev1.Container{Name: fmt.Sprint("container-", i), Image: fmt.Sprint("registry.example.com/shop/component-", i, ":v1.2.3"), Args: []string{"--config=/etc/shop/config.yaml", "--verbose"}}
		for j := range 6 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", j), Value: strings.Repeat("v", 20)})
		}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}}
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, c)
		fields += fmt.Sprintf(`"k:{\"name\":\"container-%d\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"SETTING_0\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{},"f:resources":{"f:limits":{}}},`, i)
	}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{"f:containers":{` + strings.TrimSuffix(fields, ",") + `}}}}}`),
	}}
	object, err := json.Marshal(d)
	if err != nil {
		return nil, 0, err
	}
	body, err = json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "7c5a2f34-0e5a-4c5b-9a53-1b0c0d0e0f00", Kind: metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
			Resource: metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Name: "shop", Namespace: "default",
			Operation: admissionv1.Create, Object: kruntime.RawExtension{Raw: object},
		},
	})
	return body, len(object), err
}
