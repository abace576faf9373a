// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

// Package packed keeps API objects as bytes.
//
// An [Object] is an object's protobuf message or JSON, as received but without managedFields, and
// the metadata that informers and handlers need. It is a runtime.Object and a metav1.Object, so
// that client-go's informers can store it. A [Codec] makes and decodes the objects of one informer.
package packed
