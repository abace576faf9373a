// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package sim

// merge applies a JSON merge patch (RFC 7396) to an object in place.
func merge(object, patch map[string]any) map[string]any {
	for field, value := range patch {
		before, isObject := object[field].(map[string]any)
		change, isChange := value.(map[string]any)
		switch {
		case value == nil:
			delete(object, field)
		case isChange && isObject:
			object[field] = merge(before, change)
		case isChange:
			object[field] = merge(map[string]any{}, change)
		default:
			object[field] = value
		}
	}
	return object
}
