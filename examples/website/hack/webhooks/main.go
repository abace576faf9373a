// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Webhooks writes what makes the API server call the operator's webhooks: the configurations to
// webhook/manifests.yaml below a folder, and the conversion into the CRD in crd/. go generate runs
// it.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/setpoint-dev/setpoint/examples/website/operator"
	"github.com/setpoint-dev/setpoint/webhook"
)

func main() {
	if err := generate(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func generate(config string) error {
	hooks, err := operator.Webhooks(webhook.Options{})
	if err != nil {
		return err
	}
	objects, err := hooks.Manifests()
	if err != nil {
		return err
	}
	var configurations bytes.Buffer
	for _, obj := range objects {
		if obj.GetKind() == "CustomResourceDefinition" {
			if err := setConversion(filepath.Join(config, "crd", "web.example.com_websites.yaml"), obj); err != nil {
				return err
			}
			continue
		}
		text, err := yaml.Marshal(obj)
		if err != nil {
			return err
		}
		fmt.Fprintf(&configurations, "---\n%s", text)
	}
	return os.WriteFile(filepath.Join(config, "webhook", "manifests.yaml"), configurations.Bytes(), 0o600)
}

// setConversion sets spec.conversion in the file of a CRD.
func setConversion(file string, from *unstructured.Unstructured) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		return err
	}
	conversion, _, err := unstructured.NestedMap(from.Object, "spec", "conversion")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
		return err
	}
	if text, err = yaml.Marshal(crd.Object); err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), text...), 0o600)
}
