// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package owner sets owner references of typed objects. The garbage collector deletes an object
// when all of its owners are gone.
//
//	site := owner.Of(websites, site)               // websites is a *cache.Handle
//	if err := site.SetController(deployment); err != nil { ... }
//	_, err := client.For[*appsv1.Deployment](c).Create(ctx, deployment)
//
// [Owner.SetController] makes the one controlling owner, which handler.Owner finds. [Owner.Set]
// makes one of several owners, for handler.AnyOwner. Everything happens in memory: write the object
// afterwards. For apply configurations use cache.Handle.OwnerRef.
//
// An owner and its objects are in one namespace, or the owner is cluster-scoped. The garbage
// collector would delete an object that breaks this rule, so it is an error. To clean up objects in
// other namespaces, use a finalizer.
package owner
