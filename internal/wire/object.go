// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Metadata is the part of an object, or of a metav1.Status, that Read returns.
type Metadata struct {
	APIVersion, Kind []byte

	Name, Namespace, UID, ResourceVersion []byte
	Generation                            int64
	// Deleting reports a deletionTimestamp. Grace is deletionGracePeriodSeconds, or 0.
	Deleting bool
	Grace    int64
	// Finalizers reports that metadata.finalizers is not empty.
	Finalizers bool
	// Metadata reports that the metadata was read to its end: empty fields are empty in the object.
	Metadata bool

	// Status, StatusName and StatusUID are of a metav1.Status: Success or Failure, and the name and
	// uid in its details.
	Status, StatusName, StatusUID []byte

	// DryRun and Precondition are of metav1.DeleteOptions, also inside an Eviction: whether dryRun
	// is not empty, and the uid of the preconditions.
	DryRun       bool
	Precondition []byte
}

// Stored reports that the UID and the version were read, so that the rest can be skipped.
func (o *Metadata) Stored() bool {
	return o.Metadata && len(o.UID) > 0 && len(o.ResourceVersion) > 0
}

// IsList reports whether the kind is a list or a Table.
func (o *Metadata) IsList() bool { return bytes.HasSuffix(o.Kind, []byte("List")) || o.IsTable() }

// IsTable reports whether it is a metav1.Table. Custom kinds may have the name, too.
func (o *Metadata) IsTable() bool { return string(o.Kind) == "Table" && !o.custom() }

// IsStatus reports whether it is a metav1.Status. Custom kinds may have the name, too.
func (o *Metadata) IsStatus() bool { return string(o.Kind) == "Status" && !o.custom() }

// custom reports whether the group is known and is none of metav1's.
func (o *Metadata) custom() bool {
	group, _, ok := bytes.Cut(o.APIVersion, []byte("/"))
	return ok && string(group) != metav1.GroupName
}

// Options configures Read.
type Options struct {
	// Items gets the objects of a list or a Table. Nil: lists are skipped.
	Items *[]Metadata
	// Enough stops reading once the object is Stored.
	Enough bool
}
