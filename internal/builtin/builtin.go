// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package builtin has facts about the built-in kinds that are needed before the first request.
package builtin

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ClusterScoped reports whether a built-in kind is cluster-scoped. It returns false for other
// kinds, whose scope only the API server knows.
func ClusterScoped(kind schema.GroupKind) bool {
	var of string
	switch kind.Group {
	case "":
		of = "ComponentStatus Namespace Node PersistentVolume"
	case "admissionregistration.k8s.io":
		of = "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration " +
			"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"
	case "apiextensions.k8s.io":
		of = "CustomResourceDefinition"
	case "apiregistration.k8s.io":
		of = "APIService"
	case "certificates.k8s.io":
		of = "CertificateSigningRequest ClusterTrustBundle"
	case "flowcontrol.apiserver.k8s.io":
		of = "FlowSchema PriorityLevelConfiguration"
	case "internal.apiserver.k8s.io":
		of = "StorageVersion"
	case "networking.k8s.io":
		of = "IPAddress IngressClass ServiceCIDR"
	case "node.k8s.io":
		of = "RuntimeClass"
	case "rbac.authorization.k8s.io":
		of = "ClusterRole ClusterRoleBinding"
	case "resource.k8s.io":
		of = "DeviceClass DeviceTaintRule ResourcePoolStatusRequest ResourceSlice"
	case "scheduling.k8s.io":
		of = "PriorityClass"
	case "storage.k8s.io":
		of = "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass"
	case "storagemigration.k8s.io":
		of = "StorageVersionMigration"
	}
	return slices.Contains(strings.Fields(of), kind.Kind)
}

// HasType reports whether an object, a pointer, is of a Go type of k8s.io/api. The API server
// speaks protobuf for these, and knows their merge keys. The scheme of client-go does not tell:
// programs register custom types in it, too.
func HasType(obj any) bool {
	return strings.HasPrefix(reflect.TypeOf(obj).Elem().PkgPath(), "k8s.io/api/")
}
