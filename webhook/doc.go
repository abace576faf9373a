// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook answers the API server's calls for admission and conversion, with typed
// functions. It registers the webhooks and manages their certificates.
//
//	hooks := webhook.New(webhook.Options{Name: "website-operator", Scheme: scheme,
//		Service: types.NamespacedName{Namespace: "website-system", Name: "website-webhook"}})
//	webhook.AddDefaulter(hooks, setDefaults, webhook.Registration{})
//	webhook.AddValidator(hooks, webhook.Validator[*v1.Website]{Create: validate}, webhook.Registration{})
//	webhook.AddConversion(hooks, fromAlpha, toAlpha)
//	mgr := manager.New(cfg, manager.Options{Name: "website-operator"})
//	hooks.AddTo(mgr)
//
// Webhooks may be added until the manager runs, so their functions can read its cache. The server
// answers on every replica, also on standbys and before caches are synced.
//
// # Admission
//
// AddDefaulter and AddValidator take functions of one kind. Mutating and Validating take functions
// for everything else: several kinds, subresources such as pods/binding, CONNECT.
// RequestFromContext returns the request with its user, operation and dry run. Warn adds a warning
// to the answer.
//
// An error of a function rejects the request:
//
//	field.ErrorList.ToAggregate()  422 Invalid, with a cause for each field
//	an error of package apierrors  its status
//	any other error                403 Forbidden, with the error as message
//
// The answer is HTTP status 500 after a panic, and after an error if the context has ended or a
// cache is not synced. The API server then applies the failure policy. A function's context ends
// before the API server's timeout: a tenth of it earlier, but at least 500 ms. A timeout below 1 s
// is halved.
//
// The logger of the context has the webhook, uid, kind, namespace, name and operation. Use
// logr.FromContextAsSlogLogger or klog.FromContext.
//
// A request that is no review gets an HTTP status from 400 to 415 with one sentence.
//
// # Limits
//
// The API server sends no credentials, so any client in the cluster can call a webhook. Each limit
// is for all requests of the process together, also for /convert:
//
//	body              7 MiB: an update has two objects of up to 3 MB, a conversion has one object
//	all bodies        16 MiB; up to 64 KiB, a body is not counted
//	decoded objects   64 MiB, estimated from JSON and Go type; up to 256 KiB, one is not counted
//	converted list    4 times the body, and 1 MiB
//
// A request waits for its share until its context ends, and small ones are served first. While
// others wait, a client that has sent its body, or read its answer, for 3 s is cut off. The
// answer to a request without a share is 503 with Retry-After: 1, and the API server then tries
// again within its timeout. 413 means that an object is too large.
//
// # Registration
//
// Manifests returns the webhook configurations and the CRDs' conversion as objects, for a file of
// the deployment. With Options.Register the manager applies them. No webhook is called for the
// operator's own namespace, for Leases, or for the kinds that a node needs to start.
//
// Policy adds ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their bindings, which
// the API server evaluates itself.
//
// # Rights
//
// For certificates that the process manages:
//
//	// +kubebuilder:rbac:groups="",namespace=website-system,resources=secrets,verbs=create
//	// +kubebuilder:rbac:groups="",namespace=website-system,resources=secrets,resourceNames=website-webhook-ca,verbs=get;list;watch;update
//	// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=website-operator,verbs=get;list;watch;patch
//	// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=websites.web.example.com,verbs=get;list;watch;patch
//
// With Options.Register, also these. The resourceNames restrict all verbs, because an apply names
// the object that it creates. The last line is for policies. To apply one with a paramKind, the
// operator also needs get for all such parameters.
//
//	// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=website-operator,verbs=create;list;watch;patch
//	// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=websites.web.example.com,verbs=list;watch;patch
//	// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings;mutatingadmissionpolicies;mutatingadmissionpolicybindings,resourceNames=website-policy,verbs=create;list;watch;patch
//
// # Certificates
//
// Without files in Options.Server, the process manages its certificates: replicas share CAs in a
// Secret, sign their leaves in memory, and write the CAs into the caBundles of the registrations.
// Each of them may take each step of a rotation. Deleting the Secret does not revoke a CA. To
// revoke one, stop all replicas, delete the Secret, and clear the bundles.
//
// # Concurrency
//
// All methods and functions are safe for concurrent use.
//
// # Guarantees
//
//   - A1: Rotation never causes a refused request. Conditions: a CA of the bundle that an API
//     server uses is valid, and clocks differ by at most [Options].Skew. Details: a served leaf
//     verifies with every bundle that an API server may use. Such a bundle is at most Propagation
//     old, or has a valid CA whose key is in the Secret. This holds for any number of replicas
//     and for a stop at any moment. It does not hold while API servers have a bundle that another
//     client has reset. Nor does it hold for a replica that has had no connection to the API
//     server since its CA's key was lost with the Secret, for longer than LeafLifetime.
//   - A2: A bad certificate never replaces a good one, and keys appear in no log line, event,
//     metric or error. Details: whatever the Secret contains, the certificate in use stays until
//     a better one is verified.
//   - A3: A function that panics, hangs or ends its goroutine still gets its client an answer
//     within the timeout. Details: the timeout is the API server's. The answer leaves the
//     decision to the failure policy.
//   - A4: A stop lets requests finish. Their contexts stay alive until the grace time ends.
//     During [server.Options].Linger, connections close only after an answer. Details: so no
//     request meets a closed connection. The answers of requests in flight are sent.
//   - A5: A conversion keeps metadata: only its functions change labels and annotations.
//     [webhooktest.RoundTrip] names each field that is lost. Details: nothing changes the rest of
//     the metadata.
//   - A6: Anonymous clients cannot exhaust the memory, whatever they send. Large requests share a
//     fixed budget, small ones never wait for it. A stop during an attack ends in time.
//
// Stability: settling.
package webhook
