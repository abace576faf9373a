// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// lazy is CBOR that is decoded when somebody asks for it.
type lazy []byte

// UnmarshalCBOR keeps the bytes.
func (l *lazy) UnmarshalCBOR(data []byte) error {
	*l = bytes.Clone(data)
	return nil
}

func (l lazy) fields() map[string]lazy {
	var m map[string]lazy
	if len(l) == 0 || direct.Unmarshal(l, &m) != nil {
		return nil
	}
	return m
}

func (l lazy) list() []lazy {
	var items []lazy
	if len(l) == 0 || direct.Unmarshal(l, &items) != nil {
		return nil
	}
	return items
}

func (l lazy) text() []byte {
	var text string
	if len(l) == 0 || direct.Unmarshal(l, &text) != nil || text == "" {
		return nil
	}
	return []byte(text)
}

func (l lazy) integer() int64 {
	var n int64
	if len(l) == 0 || direct.Unmarshal(l, &n) != nil {
		return 0
	}
	return n
}

const cborNull = 0xf6

// readCBOR reads an object, whole or not at all.
func readCBOR(data []byte, o Options) (Object, bool) {
	data = bytes.TrimPrefix(data, []byte{0xd9, 0xd9, 0xf7}) // the tag that says "this is CBOR"
	root := lazy(data).fields()
	if root == nil {
		return Object{}, false
	}
	if o.Each != nil {
		for _, item := range root["items"].list() {
			o.Each(objectOf(item.fields()))
		}
		for _, row := range root["rows"].list() {
			if object := row.fields()["object"].fields(); object != nil {
				o.Each(objectOf(object))
			}
		}
	}
	return objectOf(root), true
}

func objectOf(root map[string]lazy) Object {
	details := root["details"].fields()
	options := root
	if inner := root["deleteOptions"].fields(); inner != nil {
		options = inner
	}
	obj := Object{
		Kind: root["kind"].text(), Status: root["status"].text(),
		StatusName: details["name"].text(), StatusUID: details["uid"].text(),
		DryRun: len(options["dryRun"].list()) > 0, Precondition: options["preconditions"].fields()["uid"].text(),
	}
	if m := root["metadata"].fields(); m != nil {
		deletion := m["deletionTimestamp"]
		obj.Name, obj.Namespace = m["name"].text(), m["namespace"].text()
		obj.UID, obj.ResourceVersion = m["uid"].text(), m["resourceVersion"].text()
		obj.Generation, obj.Grace = m["generation"].integer(), m["deletionGracePeriodSeconds"].integer()
		obj.Deleting = len(deletion) > 0 && deletion[0] != cborNull
		obj.Finalizers = len(m["finalizers"].list()) > 0
		obj.Metadata = true
	}
	return obj
}
