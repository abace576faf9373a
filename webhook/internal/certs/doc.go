// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package certs manages the certificates of a webhook server, so that rotation never causes a
// refused request. Package webhook uses it unless the server has certificate files, and documents
// what it promises: A1 and A2.
//
// # How it works
//
// One Secret holds the CAs (ECDSA P-256), with their keys. The first replica creates it. Each
// replica signs a leaf, its server certificate, in memory. The caBundle of every target contains
// all CAs of the Secret.
//
// A rotation has these steps. Any replica takes any step, with optimistic concurrency. So a replica
// can stop at any moment, and two can act at once.
//
//  1. At half of the newest CA's lifetime, a replica adds a new CA to the Secret.
//  2. A replica adds it to all bundles.
//  3. A replica that reads it back from all bundles records the time in the Secret.
//  4. Propagation and Skew later, each replica signs its leaf with the new CA.
//  5. A CA leaves the Secret and the bundles Skew after it has expired. A leaf never
//     outlives its CA. So the old CA stays until its last leaf has expired.
//
// A CA whose key is lost leaves earlier: LeafLifetime after replicas sign with a newer one.
// The Secret has at most 16 CAs. If there are more, those with a key and in all bundles stay first,
// then the newest.
//
// API servers do not acknowledge a bundle: each learns of it by a watch that may lag. Propagation
// is the time that they get. An API server that lags longer still verifies the leaf, because
// replicas also serve the new CA's certificate, signed by the old CA ("new with old" in RFC 4210,
// section 4.4). It refuses the leaf only when all CAs of its bundle have expired, by default 45
// days after a rotation.
//
// A replica decides from live reads. It watches the Secret and the targets, by name, to know when
// to read. It also reads every 10 minutes, so a failed watch only delays it.
//
// # Bundles
//
// Run writes bundles by server-side apply, with FieldOwner and the version that was read.
// It restores a bundle that another client resets, with a log line and an event that names the
// field manager. After the third reset in a row, the delay doubles up to 5 minutes, and the log
// line has a remedy. The same holds for the Secret, and for any write that the next look does not
// find. Meanwhile the certificate serves, and bundles that lack a CA are restored.
//
// Run never writes a target with the marker of cert-manager, service-ca or OLM, nor a Secret with
// other keys or another type than Opaque.
//
// # Broken content
//
// The certificate in use is replaced only by one that the bundles verify. Problems appear in the
// log, in Check, and as an event of the Secret or the target:
//
//	Secret deleted               written again from memory; without memory, with a new CA. The old
//	                             CAs stay in the bundles until their leaves have expired
//	Secret with unusable content its good parts and the memory are written back
//	Secret reset again and again written with a delay that doubles up to 5 minutes
//	CA that cannot sign leaves   unusable: its key, its usage or its extensions are not ours
//	two CAs of one key           both stay until they expire
//	more than 16 CAs             those that may have signed a leaf in use stay
//	Secret of another tool       left alone; the certificate in use stays
//	CA from the future           reported as a clock that differs by more than Skew
//	all CAs expired              a new CA, as at the first start
//	target missing               the other targets go on
//
// Deleting the Secret does not revoke a CA: replicas restore it from their memory or from a bundle.
// To revoke one, stop all replicas, delete the Secret, and clear the bundles.
package certs
