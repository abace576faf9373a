// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package operator

// The operator's minimal permissions: each line stands for requests that this package makes.
// controller-gen writes config/rbac/role.yaml from it (`go generate ./...`), and the suite runs the
// operator with exactly these permissions.
//
// It watches Websites, keeps their finalizer, and writes their status. Some API servers require the
// permission on websites/finalizers to set a blocking owner reference.
// +kubebuilder:rbac:groups=web.example.com,resources=websites,verbs=list;watch;patch
// +kubebuilder:rbac:groups=web.example.com,resources=websites/status,verbs=patch
// +kubebuilder:rbac:groups=web.example.com,resources=websites/finalizers,verbs=update
//
// It watches what it owns, and reads an object live before it creates it. A server-side apply is a
// patch, and also needs create if the object is missing. It never deletes, because every Website
// has the same children: the garbage collector does.
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch
//
// It records events about Websites.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
//
// The leader's Lease, in the operator's own namespace.
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=website-system,resources=leases,resourceNames=website-operator,verbs=get;update;watch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=website-system,resources=leases,verbs=create
//
// The certificates of the webhooks: their CAs in a Secret, and the bundles of what calls them.
// +kubebuilder:rbac:groups="",namespace=website-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=website-system,resources=secrets,resourceNames=website-operator-webhook-ca,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,resourceNames=website-operator,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=websites.web.example.com,verbs=get;list;watch;patch
