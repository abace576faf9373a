// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Key is what identifies an object, and its controller. All fields alias the input of ReadKey.
type Key struct {
	Namespace, Name, ResourceVersion []byte
	// Controller is the owner reference with controller: true. It is empty if there is none, or if
	// ReadKey was not asked for it.
	Controller Owner
}

// Owner is a part of an owner reference.
type Owner struct{ APIVersion, Kind, Name []byte }

// Field numbers of OwnerReference, beside ownerUID.
const (
	ownerKind       = 1
	ownerName       = 3
	ownerAPIVersion = 5
	ownerController = 6
)

// ReadKey reads the key of one object: a protobuf message without its envelope, or JSON. It reads
// no further than the metadata. ok is false if that cannot be read, or has no name.
func ReadKey(f Format, data []byte, controller bool) (k Key, ok bool) {
	var obj Metadata
	switch f {
	case Protobuf:
		for m := (fields{rest: data}); !obj.Metadata && m.next(); {
			if m.number != ObjectMetadata {
				continue
			}
			if readMetadata(&obj, m); controller {
				k.Controller = protobufController(m.bytes)
			}
		}
	case JSON:
		if obj, _ = readJSON(data, Options{Enough: true}); controller {
			k.Controller = jsonController(data)
		}
	}
	k.Namespace, k.Name, k.ResourceVersion = obj.Namespace, obj.Name, obj.ResourceVersion
	return k, obj.Metadata && len(k.Name) > 0
}

func protobufController(meta []byte) (found Owner) {
	for m := (fields{rest: meta}); m.next(); {
		if m.number != metaOwners {
			continue
		}
		var owner Owner
		controls := false
		for o := (fields{rest: m.bytes}); o.next(); {
			switch o.number {
			case ownerKind:
				owner.Kind = o.bytes
			case ownerName:
				owner.Name = o.bytes
			case ownerAPIVersion:
				owner.APIVersion = o.bytes
			case ownerController:
				controls = o.value != 0
			}
		}
		if controls {
			return owner
		}
	}
	return found
}

func jsonController(data []byte) (found Owner) {
	s := jsonScanner{data: data}
	for key := range s.fields {
		if string(key) != "metadata" {
			s.skip()
			continue
		}
		for key := range s.fields {
			if string(key) != "ownerReferences" {
				s.skip()
				continue
			}
			for range s.elements {
				if owner, controls := s.owner(); controls && found.Name == nil {
					found = owner
				}
			}
		}
		return found
	}
	return found
}

func (s *jsonScanner) owner() (o Owner, controls bool) {
	for key := range s.fields {
		switch string(key) {
		case "apiVersion":
			o.APIVersion = s.text()
		case "kind":
			o.Kind = s.text()
		case "name":
			o.Name = s.text()
		case "controller":
			controls = s.is('t')
			s.skip()
		default:
			s.skip()
		}
	}
	return o, controls
}
