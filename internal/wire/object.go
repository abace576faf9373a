// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "bytes"

// Metadata is the part of an object, or of a metav1.Status, that Read returns.
type Metadata struct {
	Kind []byte

	Name, Namespace, UID, ResourceVersion []byte
	Generation                            int64
	// Deleting reports that the object has a deletionTimestamp. Grace is its
	// deletionGracePeriodSeconds, or 0.
	Deleting bool
	Grace    int64
	// Finalizers reports that metadata.finalizers is not empty.
	Finalizers bool
	// Metadata reports that the metadata was read to its end, so that an empty field is empty in
	// the object.
	Metadata bool

	// Status, StatusName and StatusUID are for a metav1.Status: Success or Failure, and the name
	// and uid in its details.
	Status, StatusName, StatusUID []byte

	// DryRun and Precondition are for metav1.DeleteOptions, also inside an Eviction. DryRun reports
	// that dryRun is not empty. Precondition is the uid of the preconditions.
	DryRun       bool
	Precondition []byte
}

// Stored reports that the UID and the version of an object were read, so that the rest can be
// skipped.
func (o *Metadata) Stored() bool {
	return o.Metadata && len(o.UID) > 0 && len(o.ResourceVersion) > 0
}

// IsList reports whether the kind is a list or a Table.
func (o *Metadata) IsList() bool {
	return bytes.HasSuffix(o.Kind, []byte("List")) || string(o.Kind) == "Table"
}

// Options configures Read.
type Options struct {
	// Each is called for each object of a list or a Table. Nil: lists are skipped.
	Each func(Metadata)
	// Enough stops reading once the object is Stored.
	Enough bool
}
