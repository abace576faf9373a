// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/manager"
	"github.com/setpoint-dev/setpoint/server"
	"github.com/setpoint-dev/setpoint/webhook"
)

// The certificates of the webhooks: their CAs in a Secret, and the bundles of what calls them.
// +kubebuilder:rbac:groups="",namespace=sample-operator-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=sample-operator-system,resources=secrets,resourceNames=sample-operator-webhook-ca,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=sample-operator,verbs=get;list;watch;patch

// newWebhooks returns the webhooks and conversions of all kinds.
func newWebhooks(o webhook.Options) (*webhook.Webhooks, error) {
	var err error
	if o.Scheme, err = newScheme(); err != nil {
		return nil, err
	}
	o.Plurals = map[schema.GroupKind]string{
		{Group: "demo.example.com", Kind: "Greeting"}: "greetings",
	}
	o.Name = name
	o.Service = types.NamespacedName{Namespace: "sample-operator-system", Name: "sample-operator-webhook"}
	hooks := webhook.New(o)
	return hooks, nil
}

// addWebhooks makes the manager answer the webhooks at an address such as :9443.
func addWebhooks(mgr *manager.Manager, address string) error {
	hooks, err := newWebhooks(webhook.Options{Server: server.Options{Address: address}})
	if err != nil {
		return err
	}
	hooks.AddTo(mgr)
	return nil
}

// writeManifests writes what makes the API server call the webhooks: manifests.yaml, and
// conversions.yaml, which is a patch of CRDs. `make generate` runs it.
func writeManifests(dir string) error {
	hooks, err := newWebhooks(webhook.Options{})
	if err != nil {
		return err
	}
	objects, err := hooks.Manifests()
	if err != nil {
		return err
	}
	var manifests, conversions bytes.Buffer
	encoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, nil, nil, json.SerializerOptions{Yaml: true})
	for _, obj := range objects {
		to := &manifests
		if obj.GetKind() == "CustomResourceDefinition" {
			to = &conversions
		}
		to.WriteString("---\n")
		if err := encoder.Encode(obj, to); err != nil {
			return err
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "manifests.yaml"), manifests.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, "conversions.yaml"), conversions.Bytes(), 0o644),
	)
}
