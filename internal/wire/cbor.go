// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"

	"github.com/fxamacker/cbor/v2"
)

// cborMode accepts what the decoder of k8s.io/apimachinery accepts: it writes its strings as bytes.
var cborMode, errCBORMode = cbor.DecOptions{
	ByteStringToString: cbor.ByteStringToStringAllowed, FieldNameByteString: cbor.FieldNameByteStringAllowed,
	FieldNameMatching: cbor.FieldNameMatchingCaseSensitive, UTF8: cbor.UTF8DecodeInvalid,
	MaxNestedLevels: 10_000, MaxArrayElements: 1<<31 - 1, MaxMapPairs: 1 << 21,
}.DecMode()

// cborText is a string; any other value is skipped.
type cborText []byte

// UnmarshalCBOR implements cbor.Unmarshaler.
func (t *cborText) UnmarshalCBOR(data []byte) error {
	var s string
	if cborMode.Unmarshal(data, &s) == nil {
		*t = cborText(s)
	}
	return nil
}

type cborObject struct {
	cborDeleteOptions

	Kind     cborText        `cbor:"kind"`
	Metadata cbor.RawMessage `cbor:"metadata"`
	Status   cborText        `cbor:"status"`
	Details  struct {
		Name cborText `cbor:"name"`
		UID  cborText `cbor:"uid"`
	} `cbor:"details"`
	Items []cbor.RawMessage `cbor:"items"`
	Rows  []struct {
		Object cbor.RawMessage `cbor:"object"`
	} `cbor:"rows"`
	DeleteOptions cborDeleteOptions `cbor:"deleteOptions"`
}

type cborMetadata struct {
	Name              cborText          `cbor:"name"`
	Namespace         cborText          `cbor:"namespace"`
	UID               cborText          `cbor:"uid"`
	ResourceVersion   cborText          `cbor:"resourceVersion"`
	Generation        int64             `cbor:"generation"`
	DeletionTimestamp cbor.RawMessage   `cbor:"deletionTimestamp"`
	Grace             int64             `cbor:"deletionGracePeriodSeconds"`
	Finalizers        []cbor.RawMessage `cbor:"finalizers"`
}

type cborDeleteOptions struct {
	DryRun        []cbor.RawMessage `cbor:"dryRun"`
	Preconditions struct {
		UID cborText `cbor:"uid"`
	} `cbor:"preconditions"`
}

// readCBOR reads a whole object. The encoder of Kubernetes sorts the fields by length, so metadata
// comes after spec and status, and a beginning is no use.
func readCBOR(data []byte, o Options) (Object, bool) {
	var c cborObject
	if !decodeCBOR(data, &c) {
		return Object{}, false
	}
	obj := Object{
		Kind: c.Kind, Status: c.Status, StatusName: c.Details.Name, StatusUID: c.Details.UID,
		DryRun:       len(c.DryRun) > 0 || len(c.DeleteOptions.DryRun) > 0,
		Precondition: c.Preconditions.UID,
	}
	if obj.Precondition == nil {
		obj.Precondition = c.DeleteOptions.Preconditions.UID
	}
	if m := (cborMetadata{}); isCBORMap(c.Metadata) && decodeCBOR(c.Metadata, &m) {
		obj.Metadata, obj.Generation, obj.Grace = true, m.Generation, m.Grace
		obj.Name, obj.Namespace, obj.UID, obj.ResourceVersion = m.Name, m.Namespace, m.UID, m.ResourceVersion
		obj.Deleting = len(m.DeletionTimestamp) > 0 && m.DeletionTimestamp[0] != cborNull
		obj.Finalizers = len(m.Finalizers) > 0
	}
	if o.Each == nil {
		return obj, true
	}
	for _, row := range c.Rows {
		c.Items = append(c.Items, row.Object)
	}
	for _, data := range c.Items {
		if item, ok := readCBOR(data, Options{}); ok && isCBORMap(data) {
			o.Each(item)
		}
	}
	return obj, true
}

// decodeCBOR reports whether data is well-formed. A value of another type than v wants is skipped.
func decodeCBOR(data []byte, v any) bool {
	if errCBORMode != nil {
		return false
	}
	err := cborMode.Unmarshal(data, v)
	_, otherType := errors.AsType[*cbor.UnmarshalTypeError](err)
	return err == nil || otherType
}

const (
	cborNull = 0xf6
	cborMap  = 5 // the major type (RFC 8949, section 3.1)
)

func isCBORMap(data []byte) bool { return len(data) > 0 && data[0]>>5 == cborMap }
