// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/setpoint-dev/setpoint/client"
)

// observed is a target as it was read.
type observed struct {
	Target

	object  *unstructured.Unstructured // nil: it does not exist
	bundles []bundle                   // none if injector or wrong is set
	wrong   string                     // why there is nothing to write, or ""
}

type bundle struct {
	webhook string // empty for a CustomResourceDefinition
	pem     []byte
	ids     map[string]bool
}

func newBundle(webhook string, clientConfig map[string]any) bundle {
	text, _, _ := unstructured.NestedString(clientConfig, "caBundle")
	data, _ := base64.StdEncoding.DecodeString(text) // the API server sends base64
	b := bundle{webhook: webhook, pem: data, ids: map[string]bool{}}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		b.ids[idOf(block.Bytes)] = true
	}
	return b
}

// observe finds the bundles of an object, which is nil if it does not exist.
func observe(t Target, object *unstructured.Unstructured) observed {
	o := observed{Target: t, object: object}
	switch {
	case object == nil:
		o.wrong = fmt.Sprintf("%s does not exist; apply the manifests of the webhooks", t)
	case injector(object) != "":
		o.wrong = fmt.Sprintf("%s belongs to %s; set CertDir of the webhook server's options to the mounted certificate, or remove the marker from the object", t, injector(object))
	case t.Kind == CustomResourceDefinition:
		conversion, _, _ := unstructured.NestedMap(object.Object, "spec", "conversion")
		config, ok, _ := unstructured.NestedMap(conversion, "webhook", "clientConfig")
		if strategy, _, _ := unstructured.NestedString(conversion, "strategy"); strategy != "Webhook" || !ok {
			o.wrong = fmt.Sprintf("%s has no webhook in spec.conversion; apply the manifests of the webhooks", t)
			return o
		}
		o.bundles = []bundle{newBundle("", config)}
	default:
		all, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
		for _, each := range all {
			webhook, _ := each.(map[string]any)
			name, _, _ := unstructured.NestedString(webhook, "name")
			config, _, _ := unstructured.NestedMap(webhook, "clientConfig")
			o.bundles = append(o.bundles, newBundle(name, config))
		}
	}
	return o
}

// injector returns the tool that writes the object's bundles, with the marker that shows it, or "".
func injector(object *unstructured.Unstructured) string {
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	for _, name := range []string{"cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret", "cert-manager.io/inject-apiserver-ca"} {
		if annotations[name] != "" {
			return "cert-manager (annotation " + name + ")"
		}
	}
	const service = "service.beta.openshift.io/inject-cabundle"
	if annotations[service] == "true" {
		return "OpenShift's service-ca (annotation " + service + ")"
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(name, "olm.") {
			return "the Operator Lifecycle Manager (label " + name + ")"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(name, "olm.") || strings.HasPrefix(name, "operatorframework.io/installed-alongside-") {
			return "the Operator Lifecycle Manager (annotation " + name + ")"
		}
	}
	return ""
}

// has reports whether all bundles have the CA.
func (o observed) has(id string) bool {
	return !slices.ContainsFunc(o.bundles, func(b bundle) bool { return !b.ids[id] })
}

// hasAll reports whether all bundles have these CAs.
func (o observed) hasAll(want []authority) bool {
	return !slices.ContainsFunc(want, func(a authority) bool { return !o.has(a.id) })
}

// inPlace reports whether all bundles have these CAs and no other.
func (o observed) inPlace(want []authority) bool {
	for _, b := range o.bundles {
		if len(b.ids) != len(want) {
			return false
		}
	}
	return o.hasAll(want)
}

// configuration returns what to apply. The version makes the write fail if the object has changed.
func (o observed) configuration(want []authority) *unstructured.Unstructured {
	config := map[string]any{"caBundle": base64.StdEncoding.EncodeToString(bundleOf(want))}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if o.Kind == CustomResourceDefinition {
		u.Object["spec"] = map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": config}}}
	} else {
		var all []any
		for _, b := range o.bundles {
			all = append(all, map[string]any{"name": b.webhook, "clientConfig": config})
		}
		u.Object["webhooks"] = all
	}
	u.SetGroupVersionKind(o.Kind.gvk())
	u.SetName(o.Name)
	u.SetResourceVersion(o.object.GetResourceVersion())
	return u
}

// taker returns the field manager other than owner that wrote a field last, or "". A client that
// removes the field leaves no trace.
func taker(object client.Object, owner, field string) string {
	return LastManager(object, func(manager string, fields *fieldpath.Set) (has bool) {
		fields.Iterate(func(p fieldpath.Path) {
			has = has || slices.ContainsFunc(p, func(e fieldpath.PathElement) bool { return e.FieldName != nil && *e.FieldName == field })
		})
		return has && manager != owner
	})
}

// LastManager returns the field manager of the newest of an object's managedFields that match
// accepts, or "".
func LastManager(object client.Object, match func(manager string, fields *fieldpath.Set) bool) string {
	var last metav1.ManagedFieldsEntry
	for _, e := range object.GetManagedFields() {
		newer := last.Manager == "" || e.Time != nil && !e.Time.Before(last.Time)
		if match(e.Manager, FieldsOf(e)) && newer {
			last = e
		}
	}
	return last.Manager
}

// FieldsOf returns the fields of an entry, or none if they cannot be read.
func FieldsOf(e metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if e.FieldsV1 != nil {
		_ = set.FromJSON(e.FieldsV1.GetRawReader()) // the API server's own
	}
	return set
}
