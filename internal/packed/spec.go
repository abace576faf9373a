// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"encoding/json"

	"github.com/setpoint-dev/setpoint/internal/object"
	"github.com/setpoint-dev/setpoint/internal/wire"
)

// SpecOf returns hashes of an object's fields without its metadata and status: see wire.Leaves. It
// returns nil if the object cannot be decoded, or has too many fields.
func SpecOf(o object.Object) []uint64 {
	if p, ok := o.(*Object); ok {
		if o, _ = p.Shared(); o == nil {
			return nil
		}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil
	}
	delete(fields, "metadata")
	delete(fields, "status")
	if data, err = json.Marshal(fields); err != nil {
		return nil
	}
	leaves, _ := wire.LeavesOf(data)
	return leaves.Values
}
