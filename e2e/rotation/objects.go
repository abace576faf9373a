// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/setpoint-dev/setpoint/client"
)

// The names that contestants need.
const (
	// Name is the ValidatingWebhookConfiguration, its webhook and the CustomResourceDefinition.
	Name = "lamps.rotation.example.com"
	// Service is the Service in front of the replicas.
	Service = "lamps"
	// Secret is an empty Secret, for contestants that do not create their own.
	Secret = "lamps-certificates"
	// ValidatePath is the path of the validating webhook, and ConvertPath of the conversion.
	ValidatePath, ConvertPath = "/" + Name, "/convert"
)

// longestCall is the timeout of the validating webhook, so that a slow machine is not a failure.
const longestCall = 30 * time.Second

// manifests returns the objects in JSON. A Service of type ExternalName leads to the balancer
// without a proxy on the node.
func manifests() []string {
	return []string{
		`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "NAMESPACE-load"}}`,
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "NAMESPACE", "name": "lamps"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}`,
		`{"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "NAMESPACE", "name": "lamps-certificates"}}`,
		`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "lamps.rotation.example.com"},
"spec": {"group": "rotation.example.com", "scope": "Namespaced", "names": {"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"},
"versions": [
{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
{"name": "v1alpha1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
"clientConfig": {"service": {"namespace": "NAMESPACE", "name": "lamps", "path": "/convert", "port": PORT}}}}}}`,
		`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "lamps.rotation.example.com"},
"webhooks": [{"name": "lamps.rotation.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
"clientConfig": {"service": {"namespace": "NAMESPACE", "name": "lamps", "path": "/lamps.rotation.example.com", "port": PORT}},
"rules": [{"apiGroups": ["rotation.example.com"], "apiVersions": ["v1"], "resources": ["lamps"], "operations": ["CREATE", "UPDATE"]}]}]}`,
	}
}

var (
	configurations = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}
	lamps          = schema.GroupVersionKind{Group: "rotation.example.com", Version: "v1alpha1", Kind: "Lamp"}
)

// install creates the objects.
func install(ctx context.Context, c *client.Client, r Replica) error {
	fill := strings.NewReplacer("NAMESPACE", r.Namespace, "PORT", fmt.Sprint(r.Port))
	for _, text := range manifests() {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(fill.Replace(text))); err != nil {
			return err
		}
		if _, err := client.ForKind[*unstructured.Unstructured](c, u.GroupVersionKind()).Create(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// bundle returns the certificates in the bundle of a configuration.
func bundle(configuration *unstructured.Unstructured) (all []string) {
	webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, each := range webhooks {
		webhook, _ := each.(map[string]any)
		text, _, _ := unstructured.NestedString(webhook, "clientConfig", "caBundle")
		data, _ := base64.StdEncoding.DecodeString(text) // the API server sends base64
		for each := range bytes.SplitAfterSeq(data, []byte("-----END CERTIFICATE-----")) {
			if each = bytes.TrimSpace(each); len(each) > 0 {
				all = append(all, string(each))
			}
		}
	}
	return all
}

// Handler answers the calls of both webhooks: it allows everything, and converts by the apiVersion
// alone.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		uid, _, _ := unstructured.NestedString(review, "request", "uid")
		response := map[string]any{"uid": uid, "allowed": true}
		if r.URL.Path == ConvertPath {
			to, _, _ := unstructured.NestedString(review, "request", "desiredAPIVersion")
			objects, _, _ := unstructured.NestedSlice(review, "request", "objects")
			for _, each := range objects {
				if object, ok := each.(map[string]any); ok {
					object["apiVersion"] = to
				}
			}
			response = map[string]any{"uid": uid, "convertedObjects": objects, "result": map[string]any{"status": "Success"}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
	})
}

// Closing closes the connection after each answer of h, so that every call begins with a handshake.
func Closing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		h.ServeHTTP(w, r)
	})
}

// lamp returns an object of the load, in the version that is not stored.
func lamp(namespace, name string, n int) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": int64(n), "text": fmt.Sprint("lamp ", n)}}}
	u.SetGroupVersionKind(lamps)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
