// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package children keeps the objects that belong to another one as they should be. It applies the
// children that an owner wants, deletes those that it no longer wants, and reports what is not
// ready.
//
//	kids, err := children.New(websites, mgr.Client(),
//		children.Of(configMaps), children.Of(services), children.Of(deployments))
//	kids.Watch(c) // a *controller.Controller
//
//	result, err := kids.Reconcile(ctx, site,
//		configMap(site),
//		service(site),
//		children.With(deployment(site), children.After(configMap(site))))
//
// A desired child is an apply configuration, generated or [client.UnstructuredConfiguration], or a
// typed object in [Typed]. It has the fields that the owner decides about; other fields stay as
// they are, such as the replicas of a Deployment that an autoscaler sets. A field that a later call
// leaves out is removed or gets its default, unless another field manager has it too: the replicas
// fall to 1 when you turn an autoscaler on. Reconcile adds a controlling owner reference, and the
// annotation [AppliedAnnotation].
//
// [Set.Watch] makes an owner due when one of its children changes. If you forget it, and the
// controller does not watch the kinds otherwise, Reconcile returns an error.
//
// # What is sent
//
// A child is applied if it is missing, if its desired fields have changed since the last apply, or
// if its live fields differ from the desired ones. With [KeepDrift], changes by others stay until
// the desired fields change. Otherwise Reconcile sends nothing, also after a restart: the
// annotation has a hash of the fields of the last apply. A child without the annotation is applied
// once. The API server stores some fields in another form, such as the quantity "1000m". A child
// with such a field is applied once after each start.
//
// # Objects of others
//
// An object of the same name that this owner does not control is neither changed nor deleted. Each
// change has a UID: a child that another client has deleted and created meanwhile is not changed.
// Each deletion also has a resourceVersion: it deletes nothing that the owner has given up
// meanwhile. A child that the cache does not have is read live before it is created. An object
// that another client creates between this read and the apply keeps its values: the apply fails if
// one of them differs, or if a controller owns the object. Else it becomes a child, because a
// server-side apply cannot demand that an object is new.
//
// # Old views of the owner
//
// Reconcile acts on the owner that it is given. After a crash, the caches of the new replica may
// not have the version of the owner that the former one acted on. Then a child may get an earlier
// form, and a pruned child may come back, until the owner's event arrives. A graceful hand-over
// waits for that version: see "Takeover" in package controller for its limits.
//
// # Pruning
//
// Reconcile deletes the objects that the owner controls, that have the annotation, and that are not
// desired, of the kinds that New was given. If the desired state cannot be computed, do not call
// Reconcile: a child that is left out is deleted. For the same reason, only one Set may keep an
// owner's children of a kind: two delete each other's. If the kind or the name of a desired child
// is unknown because of a mistake, nothing of that kind is deleted.
//
// # Order
//
// With [After], a child is applied once others are ready, by the rules of kstatus or by [Ready].
// Its [State] is Waiting until then. Children without an order are written side by side: first one,
// then two, then four, and after a failure one again. A failure does not stop the children that are
// not after it. [Set.Delete] deletes in reverse.
//
// # Reports
//
// A [Result] has a row for each child, a clause for a condition and a text for an event. The
// evidence of package why names the children that are not ready, up to 500 bytes for an owner.
// Tools that know ApplySets (KEP-3659) find the children after [Set.ApplySet].
//
// # Guarantees
//
//   - K1: A Reconcile sends nothing for a child whose desired fields have not changed since its
//     last apply, and whose live fields are as desired, also after a restart. Details: the
//     exceptions are in "What is sent".
//   - K2: An object that the owner does not control is neither changed nor deleted. Details: but
//     for the race in "Objects of others".
//   - K3: Reconcile deletes an object only if the owner controls it and an earlier call has
//     applied it. While the name of a desired child of a kind is unknown, nothing of the kind is
//     deleted.
//   - K4: A child is applied only once all before it are ready. [Set.Delete] deletes a child only
//     once all after it are gone, and all that are not desired.
//   - K5: A child that fails stops only those after it. Its error names the child and the cause.
//   - K6: A desired field that the API server does not store is an error, and no apply in each
//     Reconcile. Details: with [KeepDrift] the error comes once.
//
// # Rights
//
// For each kind: list, watch, get, create and patch, and delete for pruning, Delete and Recreate.
// [Set.ApplySet] needs patch for the owners.
//
// Stability: experimental.
package children
