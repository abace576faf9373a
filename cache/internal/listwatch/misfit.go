// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/setpoint-dev/setpoint/internal/wire"
)

// Misfit is an object that cannot be decoded, with the metadata that could be read: identity,
// version, labels and owners.
type Misfit struct {
	metav1.PartialObjectMetadata

	// AnyLabels and AnyOwners report that these could not be read.
	AnyLabels, AnyOwners bool
	// Err is why the object cannot be decoded.
	Err error
}

// identify reads each field by itself, because other metadata may be broken.
func identify(f wire.Format, raw []byte, why error) *Misfit {
	m := &Misfit{Err: why}
	if f == wire.Protobuf {
		err := m.Unmarshal(raw) // best effort
		m.TypeMeta, m.ManagedFields, m.Annotations = metav1.TypeMeta{}, nil, nil
		m.AnyLabels, m.AnyOwners = err != nil, err != nil
		return m
	}
	var o struct {
		Metadata struct {
			Namespace       string          `json:"namespace"`
			Name            string          `json:"name"`
			UID             types.UID       `json:"uid"`
			ResourceVersion string          `json:"resourceVersion"`
			Labels          json.RawMessage `json:"labels"`
			OwnerReferences json.RawMessage `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if utiljson.Unmarshal(raw, &o) != nil && o.Metadata.Name == "" {
		found, _ := wire.Read(f, raw, wire.Options{}) // up to what is no JSON
		m.Namespace, m.Name, m.UID, m.ResourceVersion = string(found.Namespace), string(found.Name), types.UID(found.UID), string(found.ResourceVersion)
		m.AnyLabels, m.AnyOwners = true, true
		return m
	}
	m.Namespace, m.Name, m.UID, m.ResourceVersion = o.Metadata.Namespace, o.Metadata.Name, o.Metadata.UID, o.Metadata.ResourceVersion
	m.AnyLabels = !into(&m.Labels, o.Metadata.Labels)
	m.AnyOwners = !into(&m.OwnerReferences, o.Metadata.OwnerReferences)
	return m
}

func into[T any](field *T, raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	var value T
	if utiljson.Unmarshal(raw, &value) != nil {
		return false
	}
	*field = value
	return true
}
