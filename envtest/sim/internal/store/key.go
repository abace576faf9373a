// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"
)

// Below is the path of a key in a namespace, or its path if namespace is empty.
func (k Key) Below(namespace string) string {
	if namespace != "" {
		return k.Name
	}
	return k.path()
}

// Within returns the keys of a namespace ("" is all) whose path is not before start.
func Within(keys []Key, namespace, start string) []Key {
	if namespace != "" {
		first, _ := slices.BinarySearchFunc(keys, Key{Namespace: namespace}, comparePaths)
		keys = keys[first:]
		end, _ := slices.BinarySearchFunc(keys, namespace, func(k Key, namespace string) int {
			if k.Namespace == namespace {
				return -1
			}
			return 1
		})
		keys = keys[:end]
	}
	if start == "" {
		return keys
	}
	first, _ := slices.BinarySearchFunc(keys, start, func(k Key, start string) int { return strings.Compare(k.Below(namespace), start) })
	return keys[first:]
}
