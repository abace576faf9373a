// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package owner sets owner references of typed objects. The garbage collector deletes an object
// when all of its owners are gone.
//
//	site := owner.Of(websites, site)               // websites is a *cache.Handle
//	if err := site.SetController(deployment); err != nil { ... }
//	_, err := client.For[*appsv1.Deployment](c).Create(ctx, deployment)
//
// [Owner.SetController] sets the one controlling owner, which handler.Owner finds. [Owner.Set] adds
// one of several owners, for handler.AnyOwner. Both change the object in memory: write it
// afterwards. For apply configurations use cache.Handle.OwnerRef.
//
// An owner must be cluster-scoped or in the namespace of its objects: the garbage collector deletes
// objects whose owner is in another namespace. To clean up objects in other namespaces, use a
// finalizer.
//
// Stability: stable.
package owner
