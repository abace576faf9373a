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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/client"
)

// The names of the objects whose bundles a contestant writes.
const (
	Configuration = "lamps.rotation.example.com" // a ValidatingWebhookConfiguration
	Definition    = "lamps.rotation.example.com" // a CustomResourceDefinition
)

const definition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "lamps.rotation.example.com"},
"spec": {"group": "rotation.example.com", "scope": "Namespaced", "names": {"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"},
"versions": [
{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
{"name": "v1alpha1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "URL/convert"}}}}}`

const configuration = `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "lamps.rotation.example.com"},
"webhooks": [{"name": "lamps.rotation.example.com", "clientConfig": {"url": "URL/validate"}, "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
"rules": [{"apiGroups": ["rotation.example.com"], "apiVersions": ["*"], "resources": ["lamps"], "operations": ["CREATE", "UPDATE"]}]}]}`

func kind(group, version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

var (
	definitions    = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
	configurations = kind("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration")
	lamps          = kind("rotation.example.com", "v1alpha1", "Lamp")
)

// install creates the objects. url leads to the balancer.
func install(ctx context.Context, c *client.Client, url string) error {
	for kind, text := range map[schema.GroupVersionKind]string{definitions: definition, configurations: configuration} {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(strings.ReplaceAll(text, "URL", url))); err != nil {
			return err
		}
		if _, err := client.ForKind[*unstructured.Unstructured](c, kind).Create(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// uninstall deletes the objects. The webhooks may be gone by then.
func uninstall(ctx context.Context, c *client.Client) {
	for _, kind := range []schema.GroupVersionKind{configurations, definitions} {
		_ = client.ForKind[*unstructured.Unstructured](c, kind).Delete(ctx, types.NamespacedName{Name: Definition})
	}
}

// bundles returns the certificates of both bundles.
func certificates(u *unstructured.Unstructured) (all []string) {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, each := range webhooks {
		webhook, _ := each.(map[string]any)
		text, _, _ = unstructured.NestedString(webhook, "clientConfig", "caBundle")
	}
	data, _ := base64.StdEncoding.DecodeString(text) // the API server sends base64
	for each := range bytes.SplitAfterSeq(data, []byte("-----END CERTIFICATE-----")) {
		if each = bytes.TrimSpace(each); len(each) > 0 {
			all = append(all, string(each))
		}
	}
	return all
}

// Handler answers the calls of both webhooks: it allows everything, and converts by the apiVersion
// alone. Each answer closes its connection.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review map[string]any
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		uid, _, _ := unstructured.NestedString(review, "request", "uid")
		response := map[string]any{"uid": uid, "allowed": true}
		if r.URL.Path == "/convert" {
			to, _, _ := unstructured.NestedString(review, "request", "desiredAPIVersion")
			objects, _, _ := unstructured.NestedSlice(review, "request", "objects")
			for _, each := range objects {
				if object, ok := each.(map[string]any); ok {
					object["apiVersion"] = to
				}
			}
			response = map[string]any{"uid": uid, "convertedObjects": objects, "result": map[string]any{"status": "Success"}}
		}
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
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
