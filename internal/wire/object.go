// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "bytes"

// Metadata is what was read of an object, or of a metav1.Status.
type Metadata struct {
	Kind []byte

	Name, Namespace, UID, ResourceVersion []byte
	Generation                            int64
	// Deleting reports that there is a deletionTimestamp. Grace is deletionGracePeriodSeconds, or 0.
	Deleting bool
	Grace    int64
	// Finalizers reports that metadata.finalizers is not empty.
	Finalizers bool
	// Metadata reports that the metadata was read to its end, so that empty fields are empty there.
	Metadata bool

	// Status, StatusName and StatusUID are of a metav1.Status: Success or Failure, and the details'
	// name and uid.
	Status, StatusName, StatusUID []byte

	// DryRun and Precondition are of metav1.DeleteOptions, also inside an Eviction: whether dryRun is
	// not empty, and the uid of the preconditions.
	DryRun       bool
	Precondition []byte
}

// Stored reports that the UID and the version of an object were read: the rest can be skipped.
func (o *Metadata) Stored() bool {
	return o.Metadata && len(o.UID) > 0 && len(o.ResourceVersion) > 0
}

// IsList reports whether the kind is that of a list, or a Table.
func (o *Metadata) IsList() bool {
	return bytes.HasSuffix(o.Kind, []byte("List")) || string(o.Kind) == "Table"
}

// Options configures Read.
type Options struct {
	// Each is called for each object of a list or a Table. Nil: they are not looked into.
	Each func(Metadata)
	// Enough stops as soon as the object is known to be Stored.
	Enough bool
}
